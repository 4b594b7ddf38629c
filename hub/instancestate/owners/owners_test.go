package owners_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owners"
)

const (
	here  = "111122223333"
	there = "444455556666"
	arn   = "arn:aws:autoscaling:eu-west-1:111122223333:autoScalingGroup:u:autoScalingGroupName/pool"
)

func machine(namespace, name, account string, ids ...string) owners.Object {
	return owners.Object{Ref: owners.Ref{Kind: "AWSMachine", Namespace: namespace, Name: name}, Account: account, Region: "eu-west-1", InstanceIDs: ids}
}

func pool(namespace, name, account, arn string, ids ...string) owners.Object {
	return owners.Object{
		Ref: owners.Ref{Kind: "AWSMachinePool", Namespace: namespace, Name: name}, Pool: true, Account: account, Region: "eu-west-1",
		GroupARN: arn, GroupName: name, InstanceIDs: ids,
	}
}

func state(id, account, region string) message.Fact {
	return message.Fact{Kind: message.StateChange, InstanceID: id, Account: account, Region: region}
}

func activity(arn, name, account, region string) message.Fact {
	return message.Fact{Kind: message.GroupActivity, GroupARN: arn, GroupName: name, Account: account, Region: region}
}

func names(objects []owners.Object) (names []string) {
	for _, o := range objects {
		names = append(names, o.Namespace+"/"+o.Name)
	}
	return names
}

func TestFind(t *testing.T) {
	var x owners.Index
	for _, o := range []owners.Object{
		machine("a", "m1", here, "i-1"),
		machine("a", "of-pool", here, "i-3"),
		machine("b", "no-account", "", "i-4"),
		pool("a", "pool", here, arn, "i-2", "i-3"),
		pool("a", "new", here, ""),
		// Row 8 of the test matrix: the same names in two namespaces and accounts.
		machine("b", "m1", there, "i-9"),
		pool("b", "new", there, ""),
		pool("c", "twin", here, ""),
		pool("d", "twin", here, ""),
	} {
		x.Set(o)
	}
	const region = "eu-west-1"
	for name, c := range map[string]struct {
		fact    message.Fact
		want    []string
		verdict owners.Verdict
	}{
		"machine":                               {state("i-1", here, region), []string{"a/m1"}, owners.Owned},
		"of another account":                    {state("i-9", there, region), []string{"b/m1"}, owners.Owned},
		"row 15: spoofed account":               {state("i-1", there, region), nil, owners.Foreign},
		"row 15: spoofed region":                {state("i-1", here, "us-east-1"), nil, owners.Foreign},
		"no account is nobody's":                {state("i-1", "", region), nil, owners.Foreign},
		"owner without account":                 {state("i-4", there, region), []string{"b/no-account"}, owners.Owned},
		"instance of a pool":                    {state("i-2", here, region), []string{"a/pool"}, owners.Owned},
		"instance of a pool that has a machine": {state("i-3", here, region), []string{"a/of-pool"}, owners.Owned},
		"nobody's":                              {state("i-8", here, region), nil, owners.Unknown},
		"group by ARN":                          {activity(arn, "pool", here, region), []string{"a/pool"}, owners.Owned},
		"group by name, ARN not yet known":      {activity(arn+"x", "new", here, region), []string{"a/new"}, owners.Owned},
		"group by name, another account's":      {activity("", "new", there, region), []string{"b/new"}, owners.Owned},
		"group by name, of a third account":     {activity("", "new", "777788889999", region), nil, owners.Foreign},
		"a group of that name, but another ARN": {activity(arn+"x", "pool", here, region), nil, owners.Unknown},
		"a name of two groups is neither's":     {activity("", "twin", here, region), nil, owners.Unknown},
		"a group's fact is not on its machine":  {message.Fact{Kind: message.GroupActivity, InstanceID: "i-1", GroupName: "no", Account: here, Region: region}, nil, owners.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			found, verdict := x.Find(c.fact)
			g.Expect(verdict).To(Equal(c.verdict))
			g.Expect(names(found)).To(Equal(c.want))
		})
	}
}

// Row 11 of the test matrix: what appears is told, so that what waits can be replayed;
// what changes or goes is forgotten.
func TestSetAndDelete(t *testing.T) {
	g := NewWithT(t)
	var x owners.Index
	x.Delete(owners.Ref{Name: "none"})
	g.Expect(x.Set(machine("a", "m", here))).To(BeEmpty(), "it has no instance yet")
	g.Expect(x.Set(machine("a", "m", here, "i-1"))).To(Equal([]string{"i-1"}))
	g.Expect(x.Set(machine("a", "m", here, "i-1"))).To(BeEmpty())
	g.Expect(x.Set(machine("b", "m", here, "i-1"))).To(BeEmpty(), "another stood for it already")
	found, _ := x.Find(state("i-1", here, "eu-west-1"))
	g.Expect(names(found)).To(Equal([]string{"a/m", "b/m"}))
	x.Delete(owners.Ref{Kind: "AWSMachine", Namespace: "a", Name: "m"})
	found, _ = x.Find(state("i-1", here, "eu-west-1"))
	g.Expect(names(found)).To(Equal([]string{"b/m"}))
	g.Expect(x.Set(machine("b", "m", here, "i-2"))).To(Equal([]string{"i-2"}))
	_, verdict := x.Find(state("i-1", here, "eu-west-1"))
	g.Expect(verdict).To(Equal(owners.Unknown))
	g.Expect(x.Set(pool("a", "p", here, ""))).To(Equal([]string{"p"}))
	g.Expect(x.Set(pool("a", "p", here, arn, "i-5"))).To(Equal([]string{"i-5", arn}))
}

func TestInstanceID(t *testing.T) {
	g := NewWithT(t)
	g.Expect(owners.InstanceID("aws:///eu-west-1a/i-0123456789abcdef0")).To(Equal("i-0123456789abcdef0"))
	for _, other := range []string{"", "i-0123", arn, "aws:///eu-west-1a/", "gce://p/z/i-1"} {
		g.Expect(owners.InstanceID(other)).To(BeEmpty(), other)
	}
}

func BenchmarkFind(b *testing.B) {
	var x owners.Index
	for i := range 5000 {
		x.Set(machine("a", fmt.Sprint(i), here, fmt.Sprintf("i-%017x", i)))
	}
	f := state(fmt.Sprintf("i-%017x", 2500), here, "eu-west-1")
	for b.Loop() {
		x.Find(f)
	}
}
