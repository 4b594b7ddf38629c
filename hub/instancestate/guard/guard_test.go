package guard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

var begin = time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)

// decoded is the fact of an event of EventBridge, some seconds after begin.
func decoded(t interface{ Fatal(...any) }, id, detailType, detail string, seconds int) message.Fact {
	source := "aws.ec2"
	if detailType == "AWS Health Event" {
		source = "aws.health"
	}
	body := fmt.Sprintf(`{"id":%q,"source":%q,"detail-type":%q,"time":%q,"detail":%s}`,
		id, source, detailType, begin.Add(time.Duration(seconds)*time.Second).Format(time.RFC3339), detail)
	m, err := message.Decode([]byte(body), begin.Add(time.Hour))
	if err != nil || len(m.Facts) != 1 {
		t.Fatal(body, err)
	}
	return m.Facts[0]
}

const id = `{"instance-id":"i-1234567890abcdef0"`

func state(t interface{ Fatal(...any) }, word string, seconds int) message.Fact {
	return decoded(t, fmt.Sprint(word, seconds), "EC2 Instance State-change Notification", id+`,"state":"`+word+`"}`, seconds)
}

func notice(t interface{ Fatal(...any) }, word string, seconds int) message.Fact {
	event := fmt.Sprint(word, seconds)
	switch word {
	case "rebalance-recommended":
		return decoded(t, event, "EC2 Instance Rebalance Recommendation", id+`}`, seconds)
	case "capacity-reservation-interruption":
		return decoded(t, event, "EC2 Capacity Reservation Instance Interruption Warning", id+`}`, seconds)
	case "scheduled-maintenance":
		return decoded(t, event, "AWS Health Event", `{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"i-1234567890abcdef0"}]}`, seconds)
	}
	return decoded(t, event, "EC2 Spot Instance Interruption Warning", id+`,"instance-action":"terminate"}`, seconds)
}

// planned is a scheduled change, or its end.
func planned(t interface{ Fatal(...any) }, change string, over bool, seconds int) message.Fact {
	status := "upcoming"
	if over {
		status = "closed"
	}
	return decoded(t, fmt.Sprintf("%s-%t-%d", change, over, seconds), "AWS Health Event",
		`{"service":"EC2","eventTypeCategory":"scheduledChange","eventArn":"`+change+`","statusCode":"`+status+`","affectedEntities":[{"entityValue":"i-1234567890abcdef0"}]}`, seconds)
}

var (
	states  = []string{"pending", "running", "stopping", "stopped", "shutting-down", "terminated"}
	notices = []string{"rebalance-recommended", "scheduled-maintenance", "spot-interruption-terminate", "capacity-reservation-interruption"}
)

func merge(facts ...message.Fact) guard.Instance {
	var i guard.Instance
	for _, f := range facts {
		i, _ = i.Merge(f)
	}
	return i
}

func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		facts []message.Fact
		want  string
	}{
		"nothing":                                 {nil, ""},
		"one second: the later in life wins":      {[]message.Fact{state(t, "terminated", 5), state(t, "shutting-down", 5)}, "terminated"},
		"terminated is final":                     {[]message.Fact{state(t, "terminated", 5), state(t, "running", 9), notice(t, "spot", 9)}, "terminated"},
		"terminated comes late with an old time":  {[]message.Fact{state(t, "running", 9), state(t, "terminated", 5)}, "terminated"},
		"a stopped instance starts again":         {[]message.Fact{state(t, "stopped", 5), state(t, "pending", 9)}, "pending"},
		"a late start does not":                   {[]message.Fact{state(t, "stopped", 5), state(t, "pending", 1)}, "stopped"},
		"a notice counts until a newer state":     {[]message.Fact{notice(t, "spot", 5), state(t, "shutting-down", 6)}, "shutting-down"},
		"not until an older one":                  {[]message.Fact{notice(t, "spot", 5), state(t, "running", 4)}, "spot-interruption-terminate"},
		"a notice from before the state is void":  {[]message.Fact{state(t, "running", 6), notice(t, "spot", 5)}, "running"},
		"the gravest notice is shown":             {[]message.Fact{notice(t, "spot", 5), notice(t, "rebalance-recommended", 6)}, "spot-interruption-terminate"},
		"also when it comes second":               {[]message.Fact{notice(t, "rebalance-recommended", 6), notice(t, "spot", 5)}, "spot-interruption-terminate"},
		"maintenance before rebalance":            {[]message.Fact{notice(t, "scheduled-maintenance", 5), notice(t, "rebalance-recommended", 6)}, "scheduled-maintenance"},
		"a state in between frees a later notice": {[]message.Fact{notice(t, "spot", 1), notice(t, "rebalance-recommended", 9), state(t, "running", 5)}, "rebalance-recommended"},
		"the end of maintenance":                  {[]message.Fact{planned(t, "a", false, 5), planned(t, "a", true, 6)}, ""},
		"in the same second":                      {[]message.Fact{planned(t, "a", true, 5), planned(t, "a", false, 5)}, ""},
		"its late beginning":                      {[]message.Fact{planned(t, "a", true, 6), planned(t, "a", false, 5)}, ""},
		"it begins again":                         {[]message.Fact{planned(t, "a", true, 6), planned(t, "a", false, 7)}, "scheduled-maintenance"},
		"its end shows the state":                 {[]message.Fact{state(t, "running", 1), planned(t, "a", false, 5), planned(t, "a", true, 6)}, "running"},
		"its end shows a lesser notice":           {[]message.Fact{notice(t, "rebalance-recommended", 4), planned(t, "a", false, 5), planned(t, "a", true, 6)}, "rebalance-recommended"},
		"the end of another one":                  {[]message.Fact{planned(t, "a", false, 5), planned(t, "b", false, 5), planned(t, "b", true, 6)}, "scheduled-maintenance"},
		"a newer state hides older ones":          {[]message.Fact{planned(t, "a", false, 5), planned(t, "b", true, 6), state(t, "running", 7)}, "running"},
		"an end does not hide a spot notice":      {[]message.Fact{notice(t, "spot", 5), planned(t, "a", true, 6)}, "spot-interruption-terminate"},
		"nothing follows the end of the instance": {[]message.Fact{state(t, "terminated", 5), planned(t, "a", true, 6)}, "terminated"},
		"a notice of the second of a stop":        {[]message.Fact{notice(t, "spot", 5), state(t, "stopping", 5)}, "spot-interruption-terminate"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(merge(c.facts...).Label()).To(Equal(c.want))
		})
	}
}

// The state of another instance, including an end, does not apply. The state in an object
// that was moved with its instance does.
func TestAnotherInstance(t *testing.T) {
	g := NewWithT(t)
	ended := merge(state(t, "shutting-down", 4), state(t, "terminated", 5))
	other := state(t, "pending", 3)
	other.InstanceID = "i-0000000000000000b"
	next, changed := ended.Merge(other)
	g.Expect(changed).To(BeTrue())
	g.Expect(next.Label()).To(Equal("pending"))
	g.Expect(next.ID).To(Equal(other.InstanceID))
	g.Expect(ended.Label()).To(Equal("terminated"), "that is as it was")
	g.Expect(next.Outlived(state(t, "terminated", 5))).To(BeTrue())

	moved, err := guard.ParseInstance(ended.String())
	g.Expect(err).NotTo(HaveOccurred())
	_, changed = moved.Merge(state(t, "running", 9))
	g.Expect(changed).To(BeFalse())
	moved.ID = "" // The format of older versions, without the id.
	_, changed = moved.Merge(state(t, "running", 9))
	g.Expect(changed).To(BeFalse())
}

// A notice is outlived by an instance that runs after it, not by its end.
func TestOutlived(t *testing.T) {
	g := NewWithT(t)
	told := notice(t, "spot", 5)
	for word, outlived := range map[string]bool{"pending": true, "running": true, "stopping": false, "stopped": false, "shutting-down": false, "terminated": false} {
		g.Expect(merge(told, state(t, word, 9)).Outlived(told)).To(Equal(outlived), word)
		g.Expect(merge(state(t, word, 9), told).Outlived(told)).To(Equal(outlived), word)
		g.Expect(merge(told, state(t, word, 1)).Outlived(told)).To(BeFalse(), word)
	}
}

// Row 2 of the test matrix: all 720 orders of the six states, with each of them twice.
func TestRow2AllPermutationsEndTerminated(t *testing.T) {
	g := NewWithT(t)
	var facts []message.Fact
	for i, word := range states {
		facts = append(facts, state(t, word, min(i, 4))) // The last two share a second.
	}
	want, n := merge(facts...), 0
	g.Expect(want.Label()).To(Equal("terminated"))
	var permute func(k int)
	permute = func(k int) {
		if k == len(facts) {
			n++
			if got := merge(append(append([]message.Fact{}, facts...), facts...)...); got.String() != want.String() {
				t.Fatalf("%s, not %s", got, want)
			}
			return
		}
		for i := k; i < len(facts); i++ {
			facts[k], facts[i] = facts[i], facts[k]
			permute(k + 1)
			facts[k], facts[i] = facts[i], facts[k]
		}
	}
	permute(0)
	g.Expect(n).To(Equal(720))
}

// history of an instance: any facts in any order, many in one second.
func history(t *rapid.T) []message.Fact {
	return rapid.SliceOfN(rapid.Custom(func(r *rapid.T) message.Fact {
		at := rapid.IntRange(0, 6).Draw(r, "second")
		if rapid.Bool().Draw(r, "planned") {
			// More changes than are kept.
			return planned(t, rapid.StringMatching("[a-y]").Draw(r, "change"), rapid.Bool().Draw(r, "over"), at)
		}
		if rapid.Bool().Draw(r, "notice") {
			return notice(t, rapid.SampledFrom(notices).Draw(r, "word"), at)
		}
		return state(t, rapid.SampledFrom(states).Draw(r, "word"), at)
	}), 1, 40).Draw(t, "history")
}

// Any permutation, duplication and interleaving of a history ends in the same label
// and guard; a prefix that is delivered again changes nothing; and a guard that was
// written and read again, in between, is the same.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		facts := history(t)
		want := merge(facts...)
		mixed := rapid.Permutation(append(append([]message.Fact{}, facts...), rapid.SliceOf(rapid.SampledFrom(facts)).Draw(t, "again")...)).Draw(t, "mixed")
		var got guard.Instance
		for n, f := range mixed {
			got, _ = got.Merge(f)
			for _, before := range mixed[:n+1] {
				if again, changed := got.Merge(before); changed || again.String() != got.String() {
					t.Fatalf("%s was merged and changes %s to %s", before.Label, got, again)
				}
			}
			read, err := guard.ParseInstance(got.String())
			if err != nil || read.String() != got.String() {
				t.Fatalf("%s reads as %s: %v", got, read, err)
			}
			got = read
		}
		if got.String() != want.String() || got.Label() != want.Label() {
			t.Fatalf("%s, not %s", got, want)
		}
	})
}

// The label moves forward: no fact reverts the state, and only a state removes a notice.
func TestStateIsMonotonic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var now guard.Instance
		for _, f := range history(t) {
			next, changed := now.Merge(f)
			if !changed && next.String() != now.String() {
				t.Fatal("changed without saying so")
			}
			if now.State != nil && now.State.Label != message.LabelTerminated && next.State.Label != message.LabelTerminated &&
				next.State.Time.Before(now.State.Time) {
				t.Fatalf("%s goes back to %s", now, next)
			}
			if f.Kind.Notice() && (len(next.Notices) < len(now.Notices) || len(next.Changes) < len(now.Changes)) {
				t.Fatalf("a notice takes one away: %s, %s", now, next)
			}
			now = next
		}
	})
}

// The label of a group is its newest event, in any order of delivery.
func TestGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		facts := history(t)
		merge := func(facts []message.Fact) (g guard.Group) {
			for _, f := range facts {
				g, _ = g.Merge(f)
			}
			return g
		}
		want, got := merge(facts), merge(rapid.Permutation(facts).Draw(t, "mixed"))
		if got.String() != want.String() {
			t.Fatalf("%s, not %s", got, want)
		}
		for _, f := range facts {
			if _, changed := got.Merge(f); changed {
				t.Fatalf("%s is merged twice: %s", f.ID, got)
			}
			if current, _ := got.Current(); !f.Over && f.Kind != message.ScheduledChange && f.Time.After(current.Time) {
				t.Fatalf("%s is not the newest", got)
			}
		}
		if read, err := guard.ParseGroup(got.String()); err != nil || read.String() != got.String() {
			t.Fatalf("%s reads as %s: %v", got, read, err)
		}
	})
}

// The group that a fact names is kept: the newest, in any order of delivery. A fact of another account or region than the
// ARN's teaches nothing.
func TestLearn(t *testing.T) {
	named := func(account, uuid string, seconds int) message.Fact {
		return message.Fact{
			Kind: message.GroupActivity, Label: "launched", Account: "111122223333", Region: "eu-west-1", Time: begin.Add(time.Duration(seconds) * time.Second),
			GroupARN: "arn:aws:autoscaling:eu-west-1:" + account + ":autoScalingGroup:" + uuid + ":autoScalingGroupName/eks-workers",
		}
	}
	learn := func(facts []message.Fact) (g guard.Group) {
		for _, f := range facts {
			g, _ = g.Merge(f)
			g, _ = g.Learn(f)
		}
		return g
	}
	g := NewWithT(t)
	elsewhere := named("111122223333", "3", 9)
	elsewhere.Region = "us-east-1"
	unnamed := named("111122223333", "4", 9)
	unnamed.GroupARN = "eks-workers"
	one, two := named("111122223333", "1", 1), named("111122223333", "2", 2)
	known := learn([]message.Fact{one, two, named("444455556666", "9", 9), elsewhere, unnamed})
	g.Expect(known.LearnedARN()).To(Equal(two.GroupARN))
	g.Expect(guard.Group{}.LearnedARN()).To(BeEmpty())
	rapid.Check(t, func(t *rapid.T) {
		facts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) message.Fact {
			return named(rapid.SampledFrom([]string{"111122223333", "444455556666"}).Draw(t, "account"), rapid.StringMatching("[a-c]").Draw(t, "uuid"), rapid.IntRange(0, 3).Draw(t, "second"))
		}), 1, 8).Draw(t, "facts")
		want := learn(facts)
		mixed := rapid.Permutation(append(append([]message.Fact{}, facts...), rapid.SampledFrom(facts).Draw(t, "again"))).Draw(t, "mixed")
		got := learn(mixed)
		read, err := guard.ParseGroup(got.String())
		if err != nil || read.String() != want.String() {
			t.Fatalf("%s, not %s: %v", read, want, err)
		}
		for _, f := range mixed {
			if _, changed := got.Learn(f); changed {
				t.Fatalf("%s is learned twice", f.GroupARN)
			}
		}
	})
}

func TestParse(t *testing.T) {
	g := NewWithT(t)
	for _, bad := range []string{"x", `{"state":3}`, `{"notices":[{"kind":"state-change"}]}`,
		`{"state":{"word":"terminated","time":"2026-01-10T10:00:00Z"},"notices":[{"kind":"rebalance","time":"2027-01-10T10:00:00Z"}]}`} {
		_, err := guard.ParseInstance(bad)
		g.Expect(err).To(HaveOccurred(), bad)
	}
	// The API server would reject a patch with an invalid label value each time.
	const at = `"time":"2026-01-10T10:00:00Z","rank":90,"id":"1"}`
	for _, word := range []string{`""`, `"no label"`, `"` + strings.Repeat("a", 64) + `"`} {
		_, err := guard.ParseInstance(`{"state":{"kind":"state-change","word":` + word + `,` + at + `}`)
		g.Expect(err).To(HaveOccurred(), word)
		_, err = guard.ParseInstance(`{"notices":[{"kind":"rebalance","word":` + word + `,` + at + `]}`)
		g.Expect(err).To(HaveOccurred(), word)
		_, err = guard.ParseGroup(`{"newest":{"kind":"asg-activity","word":` + word + `,` + at + `}`)
		g.Expect(err).To(HaveOccurred(), word)
	}
	many := strings.TrimSuffix(strings.Repeat(`{"kind":"rebalance","word":"rebalance-recommended",`+at+`,`, 1000), ",")
	_, err := guard.ParseInstance(`{"notices":[` + many + `]}`)
	g.Expect(err).To(HaveOccurred(), "of each kind there is one")
	const change = `"kind":"health-scheduled-change","rank":40,"id":"1","time":"2026-01-10T10:00:00Z"`
	const good = `{"word":"scheduled-maintenance","change":"a",` + change + `}`
	for _, bad := range []string{
		good + "," + good, `{"word":"no label","change":"a",` + change + `}`, `{"word":"rebalance-recommended","kind":"rebalance",` + at,
		`{"word":"scheduled-maintenance","change":"b",` + change + `},` + good,
	} {
		_, err = guard.ParseInstance(`{"changes":[` + bad + `]}`)
		g.Expect(err).To(HaveOccurred(), bad)
		_, err = guard.ParseGroup(`{"changes":[` + bad + `]}`)
		g.Expect(err).To(HaveOccurred(), bad)
	}
	_, err = guard.ParseInstance(`{"changes":[` + good + `]}`)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = guard.ParseInstance(`{"state":{"word":"running","kind":"state-change","time":"2026-01-10T11:00:00Z","rank":20,"id":"1"},"changes":[` + good + `]}`)
	g.Expect(err).To(HaveOccurred(), "the state is newer")
	var i guard.Instance
	i, err = guard.ParseInstance("")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(i.Label()).To(BeEmpty())
	_, err = guard.ParseGroup("[")
	g.Expect(err).To(HaveOccurred())
}

func FuzzParseInstance(f *testing.F) {
	f.Add(merge(state(f, "running", 1), notice(f, "spot", 2)).String())
	f.Fuzz(func(t *testing.T, annotation string) {
		i, err := guard.ParseInstance(annotation)
		if err != nil {
			return
		}
		for _, fact := range []message.Fact{state(t, "running", 3), notice(t, "spot", 4), state(t, "terminated", 5)} {
			i, _ = i.Merge(fact)
		}
		if i.Label() != "terminated" {
			t.Fatalf("%q ends in %q", annotation, i.Label())
		}
	})
}
