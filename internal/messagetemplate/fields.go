package messagetemplate

// Field of a template.
type Field struct {
	// Name after the dot, such as Revision.
	Name string
	// Description in one sentence, for docs.
	Description string
	// Link fields are http or https URLs.
	Link bool
	// Always is true if every event has a value for the field.
	Always bool
	sample string
}

// Names of the fields.
const (
	Title           = "Title"
	Text            = "Text"
	Kind            = "Kind"
	Severity        = "Severity"
	Time            = "Time"
	Subject         = "Subject"
	Reason          = "Reason"
	Namespace       = "Namespace"
	Pipeline        = "Pipeline"
	Environment     = "Environment"
	FromEnvironment = "FromEnvironment"
	Revision        = "Revision"
	Promotion       = "Promotion"
	Actor           = "Actor"
	URL             = "URL"
	ApproveURL      = "ApproveURL"
	PullRequestURL  = "PullRequestURL"
)

var fields = []Field{
	{Name: Title, Always: true, Description: "what happened, in one line", sample: "Approval required: 1.2.0 of pipeline shop/web into prod"},
	{Name: Text, Description: "the explanation; it may have several lines", sample: "the gates are open"},
	{Name: Kind, Always: true, Description: "kind of the event, such as promotion.waiting.v1", sample: "promotion.waiting.v1"},
	{Name: Severity, Always: true, Description: "info, warning or error", sample: "info"},
	{Name: Time, Always: true, Description: "time of the event, in RFC 3339 and UTC", sample: "2026-05-06T08:35:11Z"},
	{Name: Subject, Always: true, Description: "subject of the event, such as pipelines/shop/web", sample: "pipelines/shop/web"},
	{Name: Reason, Description: "reason in CamelCase", sample: "Soaking"},
	{Name: Namespace, Description: "namespace of the Pipeline", sample: "shop"},
	{Name: Pipeline, Description: "name of the Pipeline", sample: "web"},
	{Name: Environment, Description: "environment that the revision is promoted into", sample: "prod"},
	{Name: FromEnvironment, Description: "environment where the revision was observed", sample: "staging"},
	{Name: Revision, Description: "the revision that is promoted", sample: "1.2.0"},
	{Name: Promotion, Description: "name of the Promotion", sample: "web-prod-1"},
	{Name: Actor, Description: "name of the user who approved, rejected or overrode", sample: "jane"},
	{Name: URL, Link: true, Description: "the Pipeline's page in the dashboard, with --dashboard-url", sample: "https://capstan.example.org/pipelines/shop/web"},
	{Name: ApproveURL, Link: true, Description: "the page to approve the promotion, while it waits for that, with --dashboard-url", sample: "https://capstan.example.org/promotions/shop/web-prod-1/approve"},
	{Name: PullRequestURL, Link: true, Description: "the pull request", sample: "https://git.example.org/shop/fleet/pulls/7"},
}

var byName = func() map[string]Field {
	all := make(map[string]Field, len(fields))
	for _, f := range fields {
		all[f.Name] = f
	}
	return all
}()

// Fields returns all fields in the order of docs. The caller must not change them.
func Fields() []Field { return fields }

// samples returns the values of an event with all fields, and of an event with the least.
func samples() []map[string]string {
	full, least := map[string]string{}, map[string]string{}
	for _, f := range fields {
		full[f.Name] = f.sample
		if f.Always {
			least[f.Name] = f.sample
		}
	}
	return []map[string]string{full, least}
}
