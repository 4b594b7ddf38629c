package cli

import (
	"github.com/spf13/pflag"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/internal/egress"
)

// Flags of proxies. That of each proxy's credentials ends in -credentials-file.
const (
	gitProxyFlag     = "git-proxy"
	clusterProxyFlag = "cluster-proxy"
	noProxyFlag      = "no-proxy"
	credentialsFlag  = "-credentials-file"
)

// proxySettings are the values of the flags of proxies.
type proxySettings struct {
	git, gitCredentials         string
	clusters, clusterCredential string
	exceptions                  []string
}

func (p *proxySettings) register(f *pflag.FlagSet) {
	f.StringVar(&p.git, gitProxyFlag, "", "HTTP proxy for all requests to Git services, of Git and of their APIs, as http://host:port or https://host:port, by CONNECT; HTTPS_PROXY of the environment has no effect on them; when empty, the hub connects to them directly")
	f.StringVar(&p.gitCredentials, gitProxyFlag+credentialsFlag, "", "file with user:password for --"+gitProxyFlag+", read for each connection; when empty, the proxy gets no credentials")
	f.StringVar(&p.clusters, clusterProxyFlag, "", "HTTP proxy for all connections to workload clusters, as http://host:port or https://host:port, by CONNECT; HTTPS_PROXY of the environment has no effect on them; when empty, the hub connects to them directly")
	f.StringVar(&p.clusterCredential, clusterProxyFlag+credentialsFlag, "", "file with user:password for --"+clusterProxyFlag+", read for each connection; when empty, the proxy gets no credentials")
	f.StringSliceVar(&p.exceptions, noProxyFlag, nil, "targets to which the hub connects directly in spite of --"+gitProxyFlag+" and --"+clusterProxyFlag+", comma-separated: host, .domain or *.domain, IP address, each with an optional :port; CIDR; or * for all; loopback addresses are always connected to directly")
}

// apply checks the flags and sets the proxies.
func (p *proxySettings) apply(o *hub.Options, refuse func(flag, format string, args ...any)) {
	if _, err := egress.New(egress.Options{NoProxy: p.exceptions}); err != nil {
		refuse(noProxyFlag, "%v", err)
		return
	}
	if len(p.exceptions) > 0 && p.git == "" && p.clusters == "" {
		refuse(noProxyFlag, "it has no effect without a proxy: set --%s or --%s, too", gitProxyFlag, clusterProxyFlag)
	}
	for _, proxy := range []struct {
		flag, url, credentials string
		to                     **egress.Proxy
	}{{gitProxyFlag, p.git, p.gitCredentials, &o.GitProxy}, {clusterProxyFlag, p.clusters, p.clusterCredential, &o.ClusterProxy}} {
		made, err := egress.New(egress.Options{URL: proxy.url, CredentialsFile: proxy.credentials, NoProxy: p.exceptions, Flag: proxy.flag})
		if err != nil {
			refuse(proxy.flag, "%v", err)
			continue
		}
		*proxy.to = made
	}
}
