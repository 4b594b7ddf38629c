package owner_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
)

const (
	here   = "111122223333"
	there  = "444455556666"
	region = "eu-west-1"
	arn    = "arn:aws:autoscaling:eu-west-1:111122223333:autoScalingGroup:u:autoScalingGroupName/pool"
)

func machine(namespace, name, cluster string, ids ...string) owner.Object {
	return owner.Object{Key: owner.Key{Kind: capa.AWSMachine, Namespace: namespace, Name: name}, ClusterName: cluster, Instances: ids}
}

// managed is the pool of an EKS node group.
func managed(namespace, name, cluster, learned string, ids ...string) owner.Object {
	return owner.Object{
		Key: owner.Key{Kind: capa.AWSManagedMachinePool, Namespace: namespace, Name: name}, ClusterName: cluster,
		LearnedARN: learned, Instances: ids,
	}
}

func pool(namespace, name, cluster, arn string, ids ...string) owner.Object {
	return owner.Object{
		Key: owner.Key{Kind: capa.AWSMachinePool, Namespace: namespace, Name: name}, ClusterName: cluster,
		GroupARN: arn, GroupName: name, Instances: ids,
	}
}

func state(id, account, region string) message.Fact {
	return message.Fact{Kind: message.StateChange, InstanceID: id, Account: account, Region: region}
}

func activity(arn, name, account, region string) message.Fact {
	return message.Fact{Kind: message.GroupActivity, GroupARN: arn, GroupName: name, Account: account, Region: region}
}

// where is the place of the clusters of the tests.
func where(o owner.Object) (owner.Place, bool) {
	return map[string]owner.Place{"here": {Account: here, Region: region}, "there": {Account: there, Region: region}}[o.ClusterName], o.ClusterName != "unreadable"
}

func names(objects []owner.Object) (names []string) {
	for _, o := range objects {
		names = append(names, o.Namespace+"/"+o.Name)
	}
	return names
}

func TestFind(t *testing.T) {
	var x owner.Index
	for _, o := range []owner.Object{
		machine("a", "m1", "here", "i-1"),
		machine("a", "of-pool", "here", "i-3"),
		machine("b", "nowhere", "", "i-4"),
		pool("a", "pool", "", arn, "i-2", "i-3"),
		pool("a", "new", "here", ""),
		// Row 8 of the test matrix: the same names in two namespaces and accounts.
		machine("b", "m1", "there", "i-9"),
		pool("b", "new", "there", ""),
		pool("c", "twin", "here", ""),
		pool("d", "twin", "here", ""),
		machine("e", "unread", "unreadable", "i-5", "i-6"),
		machine("e", "read", "here", "i-6"),
		pool("e", "both", "unreadable", ""),
		pool("f", "both", "here", ""),
	} {
		x.Set(o)
	}
	for name, c := range map[string]struct {
		fact    message.Fact
		want    []string
		verdict owner.Verdict
	}{
		"machine":                               {state("i-1", here, region), []string{"a/m1"}, owner.Owned},
		"of another account":                    {state("i-9", there, region), []string{"b/m1"}, owner.Owned},
		"row 15: spoofed account":               {state("i-1", there, region), nil, owner.Foreign},
		"row 15: spoofed region":                {state("i-1", here, "us-east-1"), nil, owner.Foreign},
		"no account is foreign":                 {state("i-1", "", region), nil, owner.Foreign},
		"cluster of no known account":           {state("i-4", there, region), []string{"b/nowhere"}, owner.Owned},
		"instance of a pool":                    {state("i-2", here, region), []string{"a/pool"}, owner.Owned},
		"of a pool whose ARN says another":      {state("i-2", there, region), nil, owner.Foreign},
		"instance of a pool that has a machine": {state("i-3", here, region), []string{"a/of-pool"}, owner.Owned},
		"the account cannot be read":            {state("i-5", there, region), nil, owner.Unplaced},
		"that of one of two pools of a name":    {activity("", "both", here, region), nil, owner.Unplaced},
		"that of one of two":                    {state("i-6", here, region), []string{"e/read"}, owner.Unplaced},
		"unknown":                               {state("i-8", here, region), nil, owner.Unknown},
		"group by ARN":                          {activity(arn, "pool", here, region), []string{"a/pool"}, owner.Owned},
		"group by ARN, spoofed account":         {activity(arn, "pool", there, region), nil, owner.Foreign},
		"group by name, ARN not yet known":      {activity(arn+"x", "new", here, region), []string{"a/new"}, owner.Owned},
		"group by name, another account's":      {activity("", "new", there, region), []string{"b/new"}, owner.Owned},
		"group by name, of a third account":     {activity("", "new", "777788889999", region), nil, owner.Foreign},
		"group by name, without its ARN":        {activity("", "pool", here, region), []string{"a/pool"}, owner.Owned},
		"a group of that name, but another ARN": {activity(arn+"x", "pool", here, region), nil, owner.Unknown},
		"a name of two groups is neither's":     {activity("", "twin", here, region), nil, owner.Unknown},
		"a group's fact is not on its machine":  {message.Fact{Kind: message.GroupActivity, InstanceID: "i-1", GroupName: "no", Account: here, Region: region}, nil, owner.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			found, verdict := x.Find(c.fact, where)
			g.Expect(verdict).To(Equal(c.verdict))
			g.Expect(names(found)).To(Equal(c.want))
		})
	}
}

// hook is the fact of an instance's hook in a group.
func hook(id, arn, account string) message.Fact {
	f := activity(arn, "eks-workers-0", account, region)
	f.Kind, f.InstanceID = message.GroupLaunchHook, id
	return f
}

// groupOf is the ARN of a group of EKS in an account.
func groupOf(account, uuid string) string {
	return "arn:aws:autoscaling:" + region + ":" + account + ":autoScalingGroup:" + uuid + ":autoScalingGroupName/eks-workers-0"
}

// The group of an EKS node group is found by its instances, then by the ARN that their events named. A learned ARN says
// nothing about the account: it is that of the pool's cluster.
func TestFindLearned(t *testing.T) {
	var x owner.Index
	for _, o := range []owner.Object{
		managed("a", "workers", "here", groupOf(here, "1"), "i-1"),
		managed("b", "workers", "there", groupOf(there, "1"), "i-2"),
		managed("c", "new", "here", "", "i-3"),
		managed("d", "one", "here", groupOf(here, "2"), "i-4"),
		managed("d", "two", "here", groupOf(here, "2"), "i-5"),
		managed("e", "thief", "there", groupOf(here, "3")),
		managed("f", "thief", "there", groupOf(here, "4")),
		managed("f", "owner", "here", groupOf(here, "4")),
		managed("g", "unread", "unreadable", groupOf(here, "5")),
		managed("h", "learned", "here", arn),
		pool("h", "pool", "here", arn, "i-6"),
		{Key: owner.Key{Kind: capa.ROSAMachinePool, Namespace: "i", Name: "rosa"}, ClusterName: "here", Instances: []string{"i-7"}},
	} {
		x.Set(o)
	}
	for name, c := range map[string]struct {
		fact    message.Fact
		want    []string
		verdict owner.Verdict
	}{
		"instance":               {state("i-3", here, region), []string{"c/new"}, owner.Owned},
		"its group, by instance": {hook("i-3", groupOf(here, "9"), here), []string{"c/new"}, owner.Owned},
		"its group, by instance, spoofed account":    {hook("i-3", groupOf(there, "9"), there), nil, owner.Foreign},
		"by the learned ARN":                         {hook("i-new", groupOf(here, "1"), here), []string{"a/workers"}, owner.Owned},
		"without an instance":                        {hook("", groupOf(here, "1"), here), []string{"a/workers"}, owner.Owned},
		"the same name in another account":           {hook("i-new", groupOf(there, "1"), there), []string{"b/workers"}, owner.Owned},
		"an instance counts before the learned ARN":  {hook("i-3", groupOf(here, "1"), here), []string{"c/new"}, owner.Owned},
		"the account is not that of the learned ARN": {hook("", groupOf(here, "1"), there), nil, owner.Unknown},
		"learned by two":                             {hook("", groupOf(here, "2"), here), nil, owner.Unknown},
		"learned by two, of one's instance":          {hook("i-5", groupOf(here, "2"), here), []string{"d/two"}, owner.Owned},
		"learned by one of another account":          {hook("", groupOf(here, "3"), here), nil, owner.Unknown},
		"learned also by one of another account":     {hook("", groupOf(here, "4"), here), []string{"f/owner"}, owner.Owned},
		"the account cannot be read":                 {hook("", groupOf(here, "5"), here), nil, owner.Unplaced},
		"the ARN in an object wins":                  {hook("", arn, here), []string{"h/pool"}, owner.Owned},
		"the name is no key":                         {hook("", "", here), nil, owner.Unknown},
		"instance of ROSA":                           {state("i-7", here, region), []string{"i/rosa"}, owner.Owned},
		"ROSA has no groups":                         {hook("i-7", groupOf(here, "7"), here), nil, owner.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			found, verdict := x.Find(c.fact, where)
			g.Expect(verdict).To(Equal(c.verdict))
			g.Expect(names(found)).To(Equal(c.want))
		})
	}
	g := NewWithT(t)
	x.Set(managed("a", "workers", "here", groupOf(here, "8"), "i-1"))
	_, verdict := x.Find(hook("", groupOf(here, "1"), here), where)
	g.Expect(verdict).To(Equal(owner.Unknown), "it has learned another group since")
}

// A fact of a group waits for its group and for its instance. The newest of each is kept, once.
func TestRingOfGroups(t *testing.T) {
	g := NewWithT(t)
	begin := time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)
	r := &owner.Ring[string]{Clock: testclock.NewFakePassiveClock(begin)}
	put := func(id, uuid, word string, seconds int) {
		f := hook(id, groupOf(here, uuid), here)
		f.Time = begin.Add(time.Duration(seconds) * time.Second)
		r.Put(f, word, 0)
	}
	take := func(o owner.Object) (words []string) {
		for _, w := range r.Take(o) {
			words = append(words, w.With)
		}
		return words
	}
	put("i-1", "1", "first", 1)
	put("i-2", "1", "second", 2)
	put("i-2", "1", "late", 0)
	g.Expect(r.Len()).To(Equal(2), "the first waits for its instance only, the second also for the group")
	g.Expect(take(owner.Object{Key: owner.Key{Kind: capa.ROSAMachinePool}, Instances: []string{"i-1", "i-2"}})).To(BeEmpty())
	g.Expect(take(machine("a", "m", "here", "i-1", "i-2"))).To(BeEmpty())
	g.Expect(take(managed("a", "w", "here", "", "i-1"))).To(Equal([]string{"first"}))
	g.Expect(take(managed("a", "w", "here", groupOf(here, "1"), "i-2"))).To(Equal([]string{"second"}), "once")
	g.Expect(r.Len()).To(BeZero())

	put("i-1", "1", "old", 1)
	put("i-1", "1", "new", 2)
	g.Expect(r.Len()).To(Equal(1))
	g.Expect(take(managed("a", "w", "here", groupOf(here, "1"), "i-1"))).To(Equal([]string{"new"}))
}

// Changed and deleted objects are not found by their old keys.
func TestSetAndDelete(t *testing.T) {
	g := NewWithT(t)
	var x owner.Index
	find := func(id string) []string {
		found, _ := x.Find(state(id, here, region), where)
		return names(found)
	}
	x.Delete(owner.Key{Name: "none"})
	x.Set(machine("a", "m", "here"))
	g.Expect(find("i-1")).To(BeEmpty(), "it has no instance yet")
	x.Set(machine("a", "m", "here", "i-1"))
	x.Set(machine("b", "m", "here", "i-1"))
	g.Expect(find("i-1")).To(Equal([]string{"a/m", "b/m"}))
	x.Set(machine("b", "m", "here", "i-2"))
	g.Expect(find("i-1")).To(Equal([]string{"a/m"}))
	g.Expect(find("i-2")).To(Equal([]string{"b/m"}))
	g.Expect(x.In("")).To(HaveLen(2))
	g.Expect(x.In("Cluster/a/b")).To(BeEmpty())
	for _, key := range x.In("") {
		x.Delete(key)
	}
	g.Expect(find("i-1")).To(BeEmpty())
	g.Expect(find("i-2")).To(BeEmpty())
}

func TestInstanceID(t *testing.T) {
	g := NewWithT(t)
	g.Expect(owner.InstanceID("aws:///eu-west-1a/i-0123456789abcdef0")).To(Equal("i-0123456789abcdef0"))
	for _, other := range []string{"", "i-0123", arn, "aws:///eu-west-1a/", "gce://p/z/i-1"} {
		g.Expect(owner.InstanceID(other)).To(BeEmpty(), other)
	}
}

// Row 11 of the test matrix: a fact that arrives before its object waits for it, for a
// limited time. The newest of each instance is kept.
func TestRing(t *testing.T) {
	g := NewWithT(t)
	begin := time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)
	c := testclock.NewFakePassiveClock(begin)
	r := &owner.Ring[string]{Clock: c, Count: 3}
	put := func(id, word string, seconds, rank int) {
		f := state(id, here, region)
		f.Time, f.Rank = begin.Add(time.Duration(seconds)*time.Second), rank
		r.Put(f, word, 0)
	}
	take := func(ids ...string) (words []string) {
		for _, w := range r.Take(machine("a", "m", "here", ids...)) {
			words = append(words, w.With)
		}
		return words
	}
	put("i-1", "running", 5, 20)
	put("i-1", "pending", 1, 10)
	put("i-1", "terminated", 5, 90)
	g.Expect(r.Len()).To(Equal(1))
	g.Expect(take("i-2")).To(BeEmpty())
	g.Expect(take("i-1")).To(Equal([]string{"terminated"}))
	g.Expect(take("i-1")).To(BeEmpty(), "it was taken")
	for i := range 4 {
		put(fmt.Sprint("i-", i), fmt.Sprint(i), i, 0)
	}
	g.Expect(take("i-0", "i-1", "i-2", "i-3")).To(Equal([]string{"1", "2", "3"}), "the oldest made room")

	put("i-1", "old", 0, 0)
	c.SetTime(begin.Add(owner.DefaultTTL))
	put("i-2", "new", 0, 0)
	g.Expect(r.Len()).To(Equal(1))
	g.Expect(take("i-1", "i-2")).To(Equal([]string{"new"}))

	put("i-1", "returned", 0, 0)
	c.SetTime(begin.Add(owner.DefaultTTL + time.Minute))
	for _, w := range r.Take(machine("a", "m", "here", "i-1")) {
		r.Return(w)
	}
	g.Expect(r.Len()).To(Equal(1))
	c.SetTime(begin.Add(2 * owner.DefaultTTL))
	g.Expect(take("i-1")).To(BeEmpty(), "its time has passed, and did not begin again")

	r.Put(activity("", "pool", here, region), "by name", 0)
	r.Put(activity(arn, "pool", here, region), "by ARN", 0)
	g.Expect(r.Take(pool("a", "pool", "here", arn))).To(HaveLen(2))
	r.Bytes = 2000
	r.Put(activity("", "a", here, region), "", 1400)
	r.Put(activity("", "b", here, region), "", 1400)
	g.Expect(r.Len()).To(Equal(1), "bytes are bounded")
}

// Fifty thousand machines take less than 40 MiB.
func TestMemory(t *testing.T) {
	const n, budget = 50_000, 800 // bytes each
	var x owner.Index
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range n {
		x.Set(machine("namespace", fmt.Sprintf("workload-md-0-abcde-%05d", i), "here", fmt.Sprintf("i-%017x", i)))
	}
	each := (heap() - before) / n
	t.Logf("%d bytes for each of %d machines", each, n)
	if each > budget {
		t.Errorf("%d bytes for each machine, not %d", each, budget)
	}
	if _, verdict := x.Find(state("i-00000000000000001", here, region), where); verdict != owner.Owned {
		t.Error("it is not found")
	}
}

func BenchmarkFind(b *testing.B) {
	var x owner.Index
	for i := range 50_000 {
		x.Set(machine("a", fmt.Sprint(i), "here", fmt.Sprintf("i-%017x", i)))
	}
	f := state(fmt.Sprintf("i-%017x", 2500), here, region)
	for b.Loop() {
		x.Find(f, where)
	}
}
