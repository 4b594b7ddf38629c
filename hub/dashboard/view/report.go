package view

import (
	"time"

	"github.com/capstan-hub/capstan/internal/delivery"
)

// DeliveryReport are the delivery figures as JSON. Times are RFC 3339 in UTC, durations are whole seconds.
type DeliveryReport struct {
	// Window has the first and the last day, in UTC.
	Window ReportWindow `json:"window"`
	// Namespace and Pipeline that were requested; absent for all.
	Namespace string `json:"namespace,omitempty"`
	Pipeline  string `json:"pipeline,omitempty"`
	// Figures of all that was requested, and the deployments of each day of the window.
	Figures           ReportFigures `json:"figures"`
	DeploymentsPerDay []ReportDay   `json:"deploymentsPerDay"`
	// Namespaces are absent if one was requested, and Pipelines if one was requested. Environments are those of the one.
	Namespaces   []ReportNamespace   `json:"namespaces,omitempty"`
	Pipelines    []ReportPipeline    `json:"pipelines,omitempty"`
	Environments []ReportEnvironment `json:"environments,omitempty"`
}

// ReportWindow is a window of days.
type ReportWindow struct {
	From string `json:"from"`
	To   string `json:"to"`
	Days int    `json:"days"`
}

// ReportDay is the number of deployments of a day.
type ReportDay struct {
	Date        string `json:"date"`
	Deployments int    `json:"deployments"`
}

// ReportSpread is the median and the 90th percentile of durations, by nearest rank; absent if the count is 0.
type ReportSpread struct {
	Count         int    `json:"count"`
	MedianSeconds *int64 `json:"medianSeconds,omitempty"`
	P90Seconds    *int64 `json:"p90Seconds,omitempty"`
}

// ReportFigures are the figures of some Pipelines, or of an environment.
type ReportFigures struct {
	Deployments int `json:"deployments"`
	// Changes that ended, those that failed, and how many of a hundred; absent without a change.
	Changes              int  `json:"changes"`
	FailedChanges        int  `json:"failedChanges"`
	ChangeFailurePercent *int `json:"changeFailurePercent,omitempty"`
	Rollbacks            int  `json:"rollbacks"`

	LeadTime      ReportSpread `json:"leadTime"`
	TimeToRestore ReportSpread `json:"timeToRestore"`
	ApprovalWait  ReportSpread `json:"approvalWait"`
	GatesWait     ReportSpread `json:"gatesWait"`
	// Since is when the oldest promotion that counts ended; absent if none counts. CompleteSince is since when none is missing.
	Since         *time.Time `json:"since,omitempty"`
	CompleteSince time.Time  `json:"completeSince"`
}

// ReportNamespace are the figures of a namespace.
type ReportNamespace struct {
	Namespace string        `json:"namespace"`
	Figures   ReportFigures `json:"figures"`
}

// ReportPipeline are the figures of the last environment of a Pipeline.
type ReportPipeline struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Figures   ReportFigures `json:"figures"`
}

// ReportEnvironment are the figures of an environment of a Pipeline.
type ReportEnvironment struct {
	Name string `json:"name"`
	// Last is whether it is the last one of the Pipeline: its figures are those of the Pipeline.
	Last    bool          `json:"last"`
	Figures ReportFigures `json:"figures"`
}

// DeliveryReportOf returns the figures of what the viewer may see. It is false if a namespace or a Pipeline was requested
// that has no Promotions, or none that the viewer may see.
func DeliveryReportOf(f *Facts, scope Scope, of DeliveryOf) (DeliveryReport, bool) {
	histories := f.deliveries(scope, of)
	if len(histories) == 0 && of != (DeliveryOf{}) {
		return DeliveryReport{}, false
	}
	w, figures := delivery.NewWindow(f.Now), f.deliverySum(histories)
	r := DeliveryReport{
		Window:    ReportWindow{From: w.First().Format(dateFormat), To: w.Date(delivery.Days - 1).Format(dateFormat), Days: delivery.Days},
		Namespace: of.Namespace, Pipeline: of.Pipeline, Figures: reportOf(figures),
	}
	for i, n := range figures.PerDay {
		r.DeploymentsPerDay = append(r.DeploymentsPerDay, ReportDay{Date: w.Date(i).Format(dateFormat), Deployments: n})
	}
	if of.Pipeline != "" {
		r.Environments = f.environments(histories)
		return r, true
	}
	for i := range histories {
		p := histories[i].Pipeline
		r.Pipelines = append(r.Pipelines, ReportPipeline{Namespace: p.Namespace, Name: p.Name, Figures: reportOf(f.deliverySum(histories[i : i+1]))})
	}
	if of.Namespace == "" {
		for _, row := range f.deliveryOfNamespaces(histories) {
			r.Namespaces = append(r.Namespaces, ReportNamespace{Namespace: row.Name, Figures: reportOf(row.raw)})
		}
	}
	return r, true
}

// environments returns the figures of each environment that promotions of the ledger go into.
func (f *Facts) environments(histories []delivery.History) []ReportEnvironment {
	var all []ReportEnvironment
	for i := range histories {
		h := &histories[i]
		for _, name := range h.Entered() {
			sum := delivery.NewSum(delivery.NewWindow(f.Now), f.Retention)
			sum.AddEnvironment(h, name)
			all = append(all, ReportEnvironment{Name: name, Last: name == h.Pipeline.Last(), Figures: reportOf(sum.Figures())})
		}
	}
	return all
}

func reportOf(f delivery.Figures) ReportFigures {
	r := ReportFigures{
		Deployments: f.Deployments, Changes: f.Changes, FailedChanges: f.Failed, Rollbacks: f.Rollbacks, CompleteSince: f.CompleteSince,
		LeadTime: reportSpread(f.Lead), TimeToRestore: reportSpread(f.Restore), ApprovalWait: reportSpread(f.ApprovalWait), GatesWait: reportSpread(f.GatesWait),
	}
	if percent := f.FailurePercent(); percent >= 0 {
		r.ChangeFailurePercent = &percent
	}
	if !f.Since.IsZero() {
		r.Since = &f.Since
	}
	return r
}

func reportSpread(p delivery.Percentiles) ReportSpread {
	if p.Count == 0 {
		return ReportSpread{}
	}
	median, p90 := int64(p.Median/time.Second), int64(p.P90/time.Second)
	return ReportSpread{Count: p.Count, MedianSeconds: &median, P90Seconds: &p90}
}
