package gate

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// sunday is in winter; Riga is two hours ahead of UTC.
var sunday = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func office() pipelinesv1.Window {
	return pipelinesv1.Window{Name: "office", WindowSpec: pipelinesv1.WindowSpec{
		Type: pipelinesv1.AllowWindow, Schedule: "0 9 * * 1-5", Duration: "8h", TimeZone: "Europe/Riga",
	}}
}

func freeze() pipelinesv1.Window {
	return pipelinesv1.Window{Name: "stop", WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow, Reason: "winter freeze"}}
}

func gates(soakFor string, windows ...pipelinesv1.Window) *pipelinesv1.Gates {
	g := &pipelinesv1.Gates{Windows: windows}
	if soakFor != "" {
		g.Soak = &pipelinesv1.Soak{For: soakFor}
	}
	return g
}

// soaked is what is known of shop 1.4.2 when staging was healthy with it for some seconds until now.
func soaked(now time.Time, seconds int64, state pipelinesv1.SoakState) Facts {
	s := &pipelinesv1.SoakStatus{Seconds: seconds, State: state}
	if state == pipelinesv1.SoakReady {
		s.CountedTime = &metav1.Time{Time: now}
	}
	return Facts{Now: now, Source: "staging", Revision: "1.4.2", Agreed: &pipelinesv1.AgreedRevision{Revision: "1.4.2", Sequence: 7, Soak: s}}
}

func TestJudge(t *testing.T) {
	const hour = 3600
	monday := time.Date(2026, 3, 2, 7, 0, 0, 0, time.UTC)
	left := Facts{Now: sunday, Source: "staging", Revision: "1.4.2", Agreed: &pipelinesv1.AgreedRevision{Revision: "1.5.0", Sequence: 8}}
	latched := left
	latched.Soaked = 2 * time.Hour
	unknown := soaked(sunday, hour, pipelinesv1.SoakReady)
	unknown.Agreed.Soak = nil
	none := unknown
	none.Agreed = nil
	for name, tc := range map[string]struct {
		gates    *pipelinesv1.Gates
		facts    Facts
		reasons  []string
		open     bool
		expected time.Time
		forecast string
	}{
		"no gates": {nil, soaked(sunday, 0, pipelinesv1.SoakReady), nil, true, sunday, ""},
		"soaks": {gates("2h"), soaked(sunday, hour+600, pipelinesv1.SoakReady), []string{ReasonSoaking}, false, sunday.Add(50 * time.Minute),
			`1.4.2 may enter "prod" on Sun 2026-03-01 12:50 UTC if "staging" stays healthy; soaked 1h10m of 2h`},
		"soaks, then waits for the window": {gates("2h", office()), soaked(sunday, hour+600, pipelinesv1.SoakReady), []string{ReasonSoaking, ReasonOutsideWindow}, false, monday,
			`1.4.2 may enter "prod" on Mon 2026-03-02 09:00 Europe/Riga if "staging" stays healthy; soaked 1h10m of 2h`},
		"soaked":              {gates("2h"), soaked(sunday, 2*hour, pipelinesv1.SoakReady), []string{ReasonSoaked}, true, sunday, ""},
		"soaked, and unready": {gates("2h"), soaked(sunday, 2*hour, pipelinesv1.SoakUnready), []string{ReasonSoaked}, true, sunday, ""},
		"unready": {gates("2h"), soaked(sunday, hour, pipelinesv1.SoakUnready), []string{ReasonSourceUnready}, false, time.Time{},
			`it is not known when 1.4.2 may enter "prod"; environment "staging" must be healthy with 1.4.2 for 2h, and is not ready; after 5m the time starts again; soaked 1h of 2h`},
		"reconciled": {gates("2h"), soaked(sunday, hour, pipelinesv1.SoakProgressing), []string{ReasonSoakPaused}, false, time.Time{},
			`it is not known when 1.4.2 may enter "prod"; environment "staging" must be healthy with 1.4.2 for 2h; the time does not count while a target is reconciled or cannot be observed; soaked 1h of 2h`},
		"G8: never agreed": {gates("2h"), none, []string{ReasonSourceRunsAnother}, false, time.Time{},
			`it is not known when 1.4.2 may enter "prod"; environment "staging" must be healthy with 1.4.2 for 2h, and does not run it; soaked 0s of 2h`},
		"not counted yet": {gates("2h"), unknown, []string{ReasonSoakPaused}, false, time.Time{},
			`it is not known when 1.4.2 may enter "prod"; environment "staging" must be healthy with 1.4.2 for 2h; it was not observed yet; soaked 0s of 2h`},
		"the source left before the end": {gates("2h"), left, []string{ReasonSourceRunsAnother}, false, time.Time{},
			`it is not known when 1.4.2 may enter "prod"; environment "staging" must be healthy with 1.4.2 for 2h, and does not run it; soaked 0s of 2h`},
		"the source left after the end": {gates("2h"), latched, []string{ReasonSoaked}, true, sunday, ""},
		"a longer soak than it had":     {gates("3h"), latched, []string{ReasonSourceRunsAnother}, false, time.Time{}, `it is not known when 1.4.2 may enter "prod"; environment "staging" must be healthy with 1.4.2 for 3h, and does not run it; soaked 2h of 3h`},
		"stop button": {gates("", freeze()), soaked(sunday, 0, pipelinesv1.SoakReady), []string{ReasonFrozen}, false, time.Time{},
			`it is not known when 1.4.2 may enter "prod"; window "stop" (winter freeze) denies promotions; no time is known at which promotions are allowed again`},
		"outside of the window": {gates("", office()), soaked(sunday, 0, pipelinesv1.SoakReady), []string{ReasonOutsideWindow}, false, monday,
			`1.4.2 may enter "prod" on Mon 2026-03-02 09:00 Europe/Riga; window "office" is closed; promotions are allowed again from Mon 2026-03-02 09:00 Europe/Riga`},
		"in the window": {gates("", office()), soaked(monday, 0, pipelinesv1.SoakReady), []string{ReasonAllowed}, true, monday, ""},
		"invalid": {gates("2 hours"), soaked(sunday, 9*hour, pipelinesv1.SoakReady), []string{ReasonInvalidGate}, false, time.Time{},
			`1.4.2 cannot enter "prod"; correct the Pipeline: spec.gates.soak.for: "2 hours" is not a duration, such as 2h or 90m`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			rules := Parse(tc.gates, "spec.gates")
			results := rules.Judge(tc.facts)
			var reasons []string
			for _, r := range results {
				reasons = append(reasons, r.Reason)
			}
			g.Expect(reasons).To(Equal(tc.reasons))
			g.Expect(FirstClosed(results) == nil).To(Equal(tc.open))
			g.Expect(rules.Expected(tc.facts)).To(BeTemporally("==", tc.expected))
			g.Expect(rules.Forecast(tc.facts, "prod", false)).To(Equal(tc.forecast))
			g.Expect(rules.Forecast(tc.facts, "prod", true)).To(HaveSuffix("needs an approval"))
			g.Expect(rules.Empty()).To(Equal(tc.gates == nil))
		})
	}
}

// A misspelt zone closes the gate, whether the window allows or denies: Argo CD would take UTC.
func TestG12InvalidGates(t *testing.T) {
	edit := func(w pipelinesv1.Window, change func(*pipelinesv1.Window)) pipelinesv1.Window {
		change(&w)
		return w
	}
	for name, tc := range map[string]struct {
		gates *pipelinesv1.Gates
		says  []string
	}{
		"zone of an Allow": {gates("", edit(office(), func(w *pipelinesv1.Window) { w.TimeZone = "Europe/Rigga" })), []string{`spec.gates.windows[0].timeZone (window "office"): "Europe/Rigga" is not a time zone`}},
		"zone of a Deny": {gates("", edit(office(), func(w *pipelinesv1.Window) { w.TimeZone, w.Type = "Europe/Rigga", pipelinesv1.DenyWindow })),
			[]string{`spec.gates.windows[0].timeZone (window "office"): "Europe/Rigga" is not a time zone`}},
		"type":          {gates("", edit(freeze(), func(w *pipelinesv1.Window) { w.Type = "Forbid" })), []string{`spec.gates.windows[0].type (window "stop"): "Forbid" is neither Allow nor Deny`}},
		"duration":      {gates("", edit(office(), func(w *pipelinesv1.Window) { w.Duration = "8 hours" })), []string{`spec.gates.windows[0].duration (window "office"): "8 hours" is not a duration`}},
		"from":          {gates("", edit(freeze(), func(w *pipelinesv1.Window) { w.From = "tomorrow" })), []string{`spec.gates.windows[0].from (window "stop"): "tomorrow" is not a time of RFC 3339`}},
		"until":         {gates("", edit(freeze(), func(w *pipelinesv1.Window) { w.Until = "2026-12-20" })), []string{`spec.gates.windows[0].until (window "stop"): "2026-12-20" is not a time of RFC 3339`}},
		"names":         {gates("", freeze(), freeze()), []string{`spec.gates.windows[1].name (window "stop"): it is used twice`}},
		"soak too long": {gates("745h"), []string{`spec.gates.soak.for: 745h is not from 1s to 744h`}},
		"no soak":       {gates("0s"), []string{`spec.gates.soak.for: 0s is not from 1s to 744h`}},
		"part seconds":  {gates("1.5s"), []string{`spec.gates.soak.for: 1.5s is not from 1s to 744h, in whole seconds`}},
		"tolerate":      {&pipelinesv1.Gates{Soak: &pipelinesv1.Soak{For: "1h", Tolerate: "long"}}, []string{`spec.gates.soak.tolerate: "long" is not a duration`}},
		"less than 0":   {&pipelinesv1.Gates{Soak: &pipelinesv1.Soak{For: "1h", Tolerate: "-1s"}}, []string{`spec.gates.soak.tolerate: -1s is not from 0s to 744h`}},
		"two": {gates("2 hours", freeze(), edit(office(), func(w *pipelinesv1.Window) { w.TimeZone = "" }), edit(office(), func(w *pipelinesv1.Window) { w.Schedule = "TZ=UTC 0 9 * * *" })),
			[]string{"spec.gates.soak.for", `windows[1].timeZone (window "office"): a schedule needs a time zone`, `windows[2].schedule (window "office"): "TZ=UTC 0 9 * * *" is not five fields`}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			rules := Parse(tc.gates, "spec.gates")
			said := ""
			for _, err := range rules.Errors() {
				said += err.Error() + "\n"
			}
			for _, says := range tc.says {
				g.Expect(said).To(ContainSubstring(says))
			}
			closed := FirstClosed(rules.Judge(soaked(sunday, 1<<30, pipelinesv1.SoakReady)))
			g.Expect(closed).NotTo(BeNil())
			g.Expect(closed.State).To(Equal(capstanv1.GateInvalid))
		})
	}
}

// The gates of an environment replace those of the Pipeline.
func TestFor(t *testing.T) {
	g := NewWithT(t)
	p := &pipelinesv1.Pipeline{Spec: pipelinesv1.PipelineSpec{
		Gates:        gates("2h"),
		Environments: []pipelinesv1.Environment{{Name: "dev"}, {Name: "staging", Gates: &pipelinesv1.Gates{}}, {Name: "prod", Gates: gates("x")}},
	}}
	g.Expect(For(p, 0).Soak().For).To(Equal(2 * time.Hour))
	g.Expect(For(p, 1).Empty()).To(BeTrue())
	g.Expect(For(p, 2).Errors()).To(ConsistOf(MatchError(ContainSubstring("spec.environments[2].gates.soak.for"))))
}

// The forecast is what a scan by minutes finds, for random windows and soaks.
func TestForecastIsExact(t *testing.T) {
	g := NewWithT(t)
	seed := rand.Uint64() //nolint:gosec // Any seed is good.
	random := rand.New(rand.NewPCG(seed, 1))
	zones := []string{"Europe/Riga", "America/New_York", "Australia/Lord_Howe", "UTC"}
	window := func(i int) pipelinesv1.Window {
		w := pipelinesv1.Window{Name: fmt.Sprint(i)}
		w.Type = []pipelinesv1.WindowType{pipelinesv1.AllowWindow, pipelinesv1.DenyWindow}[random.IntN(2)]
		w.Schedule = fmt.Sprintf("%d %d * * %s", random.IntN(60), random.IntN(24), []string{"*", "1-5", "0", "2,4"}[random.IntN(4)])
		w.Duration = (time.Duration(1+random.IntN(60)) * 17 * time.Minute).String()
		w.TimeZone = zones[random.IntN(len(zones))]
		return w
	}
	// open says whether the gates are open after so many minutes in which dev stayed healthy.
	open := func(rules Rules, f Facts, minutes int) bool {
		f.Now = f.Now.Add(time.Duration(minutes) * time.Minute)
		f.Agreed = &pipelinesv1.AgreedRevision{Revision: f.Revision, Soak: &pipelinesv1.SoakStatus{Seconds: f.Agreed.Soak.Seconds + int64(minutes)*60, State: pipelinesv1.SoakReady}}
		return FirstClosed(rules.Judge(f)) == nil
	}
	const days = 4
	for n := range 40 {
		year := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		now := year.Add(time.Duration(random.IntN(365*24*60)) * time.Minute)
		var windows []pipelinesv1.Window
		for i := range random.IntN(4) {
			windows = append(windows, window(i))
		}
		rules := Parse(gates(fmt.Sprintf("%dm", 1+random.IntN(3*24*60)), windows...), "spec.gates")
		g.Expect(rules.Errors()).To(BeEmpty())
		f := soaked(now, int64(random.IntN(24*60))*60, pipelinesv1.SoakReady)
		said := fmt.Sprintf("seed %d, case %d", seed, n)
		expected := rules.Expected(f)
		minutes := int(expected.Sub(now) / time.Minute)
		if expected.IsZero() || minutes > days*24*60 {
			for range 100 { // A scan by all minutes of a year would take too long.
				minute := random.IntN(days * 24 * 60)
				g.Expect(open(rules, f, minute)).To(BeFalse(), "%s: after %d minutes", said, minute)
			}
			continue
		}
		for minute := range minutes {
			g.Expect(open(rules, f, minute)).To(BeFalse(), "%s: after %d minutes, before %s", said, minute, expected)
		}
		g.Expect(open(rules, f, minutes)).To(BeTrue(), said)
	}
}

func BenchmarkJudge(b *testing.B) {
	f := soaked(sunday, 0, pipelinesv1.SoakReady)
	spec := gates("2h", office(), freeze(), office(), office())
	for i := range spec.Windows {
		spec.Windows[i].Name = fmt.Sprint(i)
	}
	for b.Loop() {
		Parse(spec, "spec.gates").Judge(f)
	}
}
