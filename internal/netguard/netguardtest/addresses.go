package netguardtest

import "net"

// Address is one sample.
type Address struct {
	// Name says what the address is.
	Name string
	// IP is the address as text.
	IP string
	// Reason is a part of the refusal's message.
	Reason string
}

// HostPort joins the address and a port, as a URL writes them.
func (a Address) HostPort(port string) string { return net.JoinHostPort(a.IP, port) }

// Host is the address as a URL writes it, with brackets for IPv6.
func (a Address) Host() string {
	host := a.HostPort("")
	return host[:len(host)-1]
}

// Forbidden addresses are refused with all options.
var Forbidden = []Address{
	{"unspecified", "0.0.0.0", "unspecified"},
	{"unspecified, IPv6", "::", "unspecified"},
	{"multicast", "224.0.0.1", "multicast"},
	{"multicast, site", "239.1.2.3", "multicast"},
	{"multicast, IPv6", "ff02::1", "multicast"},
	{"broadcast", "255.255.255.255", "broadcast"},
	{"broadcast, NAT64", "64:ff9b::ffff:ffff", "broadcast"},
	{"link-local", "169.254.1.1", "link-local"},
	{"link-local, IPv6", "fe80::1", "link-local"},
	{"metadata", "169.254.169.254", "link-local"},
	{"metadata, mapped", "::ffff:169.254.169.254", "link-local"},
	{"metadata, NAT64", "64:ff9b::a9fe:a9fe", "link-local"},
	{"metadata, OpenStack, IPv6", "fe80::a9fe:a9fe", "link-local"},
	{"credentials of containers, AWS", "169.254.170.2", "link-local"},
	{"Pod identity, AWS", "169.254.170.23", "link-local"},
	{"metadata, AWS, IPv6", "fd00:ec2::254", "metadata"},
	{"Pod identity, AWS, IPv6", "fd00:ec2::23", "metadata"},
	{"metadata, Google, IPv6", "fd20:ce::254", "metadata"},
	{"metadata, Azure", "168.63.129.16", "metadata"},
	{"metadata, Azure, mapped", "::ffff:168.63.129.16", "metadata"},
	{"metadata, Alibaba", "100.100.100.200", "metadata"},
	{"metadata, Alibaba, NAT64", "64:ff9b::6464:64c8", "metadata"},
	{"metadata, Alibaba, IPv6", "fd00:100::100:200", "metadata"},
	{"metadata, Oracle", "192.0.0.192", "metadata"},
	{"metadata, Oracle, IPv6", "fd00:c1::a9fe:a9fe", "metadata"},
	{"metadata, Scaleway, IPv6", "fd00:42::42", "metadata"},
	{"metadata, Linode, IPv6", "fd00:a9fe:a9fe::1", "metadata"},
}

// Loopback are refused unless the option that allows loopback is set.
var Loopback = []Address{
	{"loopback", "127.0.0.1", "loopback"},
	{"loopback, another", "127.9.9.9", "loopback"},
	{"loopback, mapped", "::ffff:127.0.0.1", "loopback"},
	{"loopback, NAT64", "64:ff9b::7f00:1", "loopback"},
	{"loopback, IPv6", "::1", "loopback"},
}

// Allowed are dialled whatever the options are: public and private addresses next to
// the forbidden ones.
var Allowed = []Address{
	{Name: "public", IP: "140.82.121.4"},
	{Name: "public, IPv6", IP: "2a00::1"},
	{Name: "public, NAT64", IP: "64:ff9b::8c52:7904"},
	{Name: "private, 10/8", IP: "10.1.2.3"},
	{Name: "private, 172.16/12", IP: "172.16.0.1"},
	{Name: "private, 192.168/16", IP: "192.168.1.1"},
	{Name: "unique local", IP: "fd00:ec2::255"},
	{Name: "before link-local", IP: "169.253.255.255"},
	{Name: "after link-local", IP: "169.255.0.0"},
	{Name: "before multicast", IP: "223.255.255.255"},
	{Name: "next to Alibaba's", IP: "100.100.100.201"},
	{Name: "next to Oracle's", IP: "192.0.0.193"},
	{Name: "next to Azure's", IP: "168.63.129.17"},
}
