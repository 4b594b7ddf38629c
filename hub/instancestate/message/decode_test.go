package message_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

const fixtures = "../testdata/aws-events"

var labelValue = regexp.MustCompile(`^[a-z]([a-z-]{0,61}[a-z])?$`)

var sent = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)

// fixture is a line of the manifest.
type fixture struct {
	File         string
	Kind         message.Kind
	InstanceIDs  []string
	ASGName      string
	EventTime    string
	ExpectLabels map[string]string
	Disposition  message.Disposition
}

func manifest(t testing.TB) []fixture {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(fixtures, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []fixture
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func body(t testing.TB, file string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(fixtures, file))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Row 1 of the test matrix, for the decoder.
func TestFixtures(t *testing.T) {
	all := manifest(t)
	NewWithT(t).Expect(len(all)).To(BeNumerically(">=", 21))
	for _, f := range all {
		t.Run(f.File, func(t *testing.T) {
			g := NewWithT(t)
			m, err := message.Decode(body(t, f.File), sent)
			g.Expect(m.Kind).To(Equal(f.Kind))
			g.Expect(m.Disposition).To(Equal(f.Disposition))
			if f.Disposition == message.DeadLetter {
				g.Expect(err).To(MatchError(message.ErrMalformed))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			if f.Disposition == message.Ignore {
				g.Expect(m.Facts).To(BeEmpty())
				g.Expect(m.Reason).NotTo(BeEmpty())
				return
			}
			var ids []string
			for _, fact := range m.Facts {
				ids = append(ids, fact.InstanceID)
				label := "ec2-instance-state"
				if fact.Kind.Group() {
					label = "asg-instance-state"
				}
				g.Expect(map[string]string{label: fact.Label}).To(Equal(f.ExpectLabels))
				g.Expect(fact.GroupName).To(Equal(f.ASGName))
				g.Expect(fact.Time.Format(time.RFC3339)).To(Equal(f.EventTime))
				g.Expect(fact.Guessed).To(BeFalse())
				g.Expect(fact.Account).To(Equal("123456789012"))
				g.Expect(fact.Region).To(Equal("us-east-1"))
				g.Expect(fact.Rank).To(BeNumerically(">", 0))
				if fact.Kind.Group() {
					g.Expect(fact.GroupARN).To(HaveSuffix("autoScalingGroupName/my-asg"))
				}
			}
			g.Expect(ids).To(Equal(f.InstanceIDs))
		})
	}
}

func TestDetails(t *testing.T) {
	g := NewWithT(t)
	fact := func(file string) message.Fact {
		m, err := message.Decode(body(t, file), sent)
		g.Expect(err).NotTo(HaveOccurred())
		return m.Facts[0]
	}
	f := fact("health-scheduled-multi-entity.json")
	g.Expect(f.ID).To(Equal("123456789012/01b0993207d81a09dcd552ebd1e633e36cf1f09a-1"))
	g.Expect(f.Details).To(Equal(map[string]string{
		"eventTypeCode": "AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED", "start": "2026-01-31T02:00:00Z", "end": "2026-01-31T04:00:00Z",
	}))
	g.Expect(fact("ec2-spot-interruption-terminate.json").Deadline).To(Equal(time.Date(2026, 1, 10, 10, 2, 0, 0, time.UTC)))
	g.Expect(fact("ec2-spot-interruption-hibernate.json").Deadline).To(BeZero())
	g.Expect(fact("ec2-capacity-reservation-interruption.json").Deadline).To(Equal(time.Date(2026, 1, 10, 10, 2, 0, 0, time.UTC)))
	g.Expect(fact("asg-terminate-unsuccessful.json").Details).To(HaveKeyWithValue("statusMessage", "message-text"))
	g.Expect(fact("ec2-spot-interruption-terminate.json").Urgent()).To(BeTrue())
	g.Expect(fact("ec2-state-shutting-down.json").Urgent()).To(BeTrue())
	g.Expect(fact("ec2-state-running.json").Urgent()).To(BeFalse())
}

// Cases that the fixtures do not have.
func TestDecode(t *testing.T) {
	const (
		envelope = `"id":"1","account":"123456789012","time":"2026-01-10T10:00:00Z","region":"us-east-1","resources":[]`
		ec2      = `{"source":"aws.ec2",` + envelope + `,"detail-type":`
		state    = `"EC2 Instance State-change Notification","detail":`
		id       = `"instance-id":"i-1234567890abcdef0"`
		health   = `{"source":"aws.health",` + envelope + `,"detail-type":"AWS Health Event","detail":`
		scaling  = `{"source":"aws.autoscaling",` + envelope + `,"detail-type":`
	)
	wrap := func(inner string) string {
		raw, _ := json.Marshal(inner)
		return fmt.Sprintf(`{"Type":"Notification","TopicArn":"arn:aws:sns:us-east-1:123456789012:T","Message":%s}`, raw)
	}
	direct := `{"LifecycleTransition":"autoscaling:EC2_INSTANCE_TERMINATING","AutoScalingGroupName":"g","EC2InstanceId":"i-1234567890abcdef0",` +
		`"Time":"2026-01-10T10:00:00.5Z","AccountId":"123456789012","RequestId":"r"}`
	endless := strings.Repeat("0", 200_000)
	for name, c := range map[string]struct {
		body   string
		words  string
		reason string
	}{
		"no version":               {body: ec2 + state + `{` + id + `,"state":"pending"}}`, words: "pending"},
		"unknown state":            {body: ec2 + state + `{` + id + `,"state":"hovering"}}`, reason: "state"},
		"no state":                 {body: ec2 + state + `{` + id + `}}`},
		"instance id is a number":  {body: ec2 + state + `{"instance-id":7,"state":"pending"}}`},
		"instance id is no id":     {body: ec2 + state + `{"instance-id":"../../x","state":"pending"}}`},
		"detail is null":           {body: ec2 + state + `null}`},
		"detail is a list":         {body: ec2 + state + `[]}`},
		"spot of a new kind":       {body: ec2 + `"EC2 Spot Instance Interruption Warning","detail":{` + id + `,"instance-action":"evaporate"}}`, words: "spot-interruption-evaporate"},
		"spot without action":      {body: ec2 + `"EC2 Spot Instance Interruption Warning","detail":{` + id + `}}`},
		"spot with free text":      {body: ec2 + `"EC2 Spot Instance Interruption Warning","detail":{` + id + `,"instance-action":"a b"}}`},
		"empty object":             {body: `{}`},
		"list":                     {body: `[]`},
		"null":                     {body: `null`},
		"truncated":                {body: ec2 + state + `{` + id},
		"no detail-type":           {body: `{"source":"aws.ec2",` + envelope + `}`},
		"of another application":   {body: `{"source":"com.example","detail-type":"x","detail":{}}`, reason: "detail-type"},
		"resources of a number":    {body: `{"source":"aws.ec2","detail-type":"x","resources":3}`},
		"health, another category": {body: health + `{"service":"EC2","eventTypeCategory":"issue"}}`, reason: "category"},
		"health, public":           {body: health + `{"service":"EC2","eventTypeCategory":"scheduledChange","eventScopeCode":"PUBLIC"}}`, reason: "no-instances"},
		"health without service":   {body: health + `{}}`},
		"health, over":             {body: health + `{"service":"EC2","eventTypeCategory":"scheduledChange","statusCode":"closed","affectedEntities":[{"entityValue":"i-0aaaaaaaaaaaaaaa1"}]}}`, words: "end of scheduled-maintenance"},
		"health, public and over":  {body: health + `{"service":"EC2","eventTypeCategory":"scheduledChange","statusCode":"closed","eventScopeCode":"PUBLIC"}}`, reason: "no-instances"},
		"health, over in part":     {body: health + `{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"i-0aaaaaaaaaaaaaaa1","status":"RESOLVED"},{"entityValue":"arn:aws:ec2:us-east-1:1:instance/i-0aaaaaaaaaaaaaaa1","status":"PENDING"}]}}`, words: "scheduled-maintenance"},
		"health, mixed entities": {
			body: health + `{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"vol-1"},` +
				`{"entityValue":"i-0aaaaaaaaaaaaaaa1","status":"RESOLVED"},{"entityValue":"i-0aaaaaaaaaaaaaaa2","statusCode":"RESOLVED"},{"entityValue":"UNKNOWN"},` +
				`{"entityValue":"arn:aws:ec2:us-east-1:123456789012:instance/i-0aaaaaaaaaaaaaaa3"},{"entityValue":"i-0aaaaaaaaaaaaaaa3"}]}}`,
			words: "end of scheduled-maintenance,end of scheduled-maintenance,scheduled-maintenance",
		},
		"warm pool": {body: scaling + `"EC2 Instance-terminate Lifecycle Action","detail":{"AutoScalingGroupName":"g","EC2InstanceId":"i-1234567890abcdef0","Destination":"WarmPool"}}`, words: "warm-pool"},
		"launch failed, no instance": {
			body: scaling + `"EC2 Instance Launch Unsuccessful","detail":{"AutoScalingGroupName":"g","EC2InstanceId":""}}`, words: "launch-failed",
		},
		"hook without instance":  {body: scaling + `"EC2 Instance-launch Lifecycle Action","detail":{"AutoScalingGroupName":"g"}}`},
		"hook without group":     {body: scaling + `"EC2 Instance-launch Lifecycle Action","detail":{"EC2InstanceId":"i-1234567890abcdef0"}}`},
		"instance refresh":       {body: scaling + `"EC2 Auto Scaling Instance Refresh Started","detail":{"AutoScalingGroupName":"g"}}`, reason: "detail-type"},
		"test by EventBridge":    {body: scaling + `"EC2 Instance-launch Lifecycle Action","detail":{"LifecycleTransition":"autoscaling:TEST_NOTIFICATION"}}`, reason: "test"},
		"direct":                 {body: direct, words: "terminating"},
		"direct by SNS":          {body: wrap(direct), words: "terminating"},
		"SNS by SNS":             {body: wrap(wrap(direct)), words: "terminating"},
		"SNS by SNS by SNS":      {body: wrap(wrap(wrap(direct)))},
		"nonsense by SNS":        {body: wrap("abcd")},
		"subscription of SNS":    {body: `{"Type":"SubscriptionConfirmation","TopicArn":"t","Message":"You have chosen"}`, reason: "sns-SubscriptionConfirmation"},
		"SNS of an unknown type": {body: `{"Type":"anything at all","TopicArn":"t"}`, reason: "sns-other"},
		"endless id":             {body: `{"source":"aws.ec2","id":"` + endless + `","detail-type":` + state + `{` + id + `,"state":"pending"}}`},
		"endless time":           {body: `{"source":"aws.ec2","time":"` + endless + `","detail-type":` + state + `{` + id + `,"state":"pending"}}`},
		"endless resource":       {body: `{"source":"aws.ec2","resources":"` + endless + `","detail-type":` + state + `{` + id + `,"state":"pending"}}`},
		"endless communication":  {body: health + `{"service":"EC2","eventTypeCategory":"scheduledChange","communicationId":"` + endless + `","affectedEntities":[{"entityValue":"i-0aaaaaaaaaaaaaaa1"}]}}`},
		"endless group":          {body: scaling + `"EC2 Instance Launch Unsuccessful","detail":{"AutoScalingGroupName":"` + endless + `"}}`},
		"endless request":        {body: `{"Event":"autoscaling:EC2_INSTANCE_LAUNCH","AutoScalingGroupName":"g","RequestId":"` + endless + `"}`},
		"direct, old style":      {body: `{"Event":"autoscaling:EC2_INSTANCE_LAUNCH","AutoScalingGroupName":"g","EC2InstanceId":"i-1234567890abcdef0","Time":"2026-01-10T10:00:00Z"}`, words: "launched"},
		"direct, unknown":        {body: `{"Event":"autoscaling:LUNCH"}`, reason: "transition"},
		"direct test by old key": {body: `{"LifecycleTransition":"autoscaling:TEST_NOTIFICATION"}`, reason: "test"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m, err := message.Decode([]byte(c.body), sent)
			if c.words == "" && c.reason == "" {
				g.Expect(err).To(MatchError(message.ErrMalformed))
				g.Expect(m.Disposition).To(Equal(message.DeadLetter))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			var words []string
			for _, f := range m.Facts {
				if f.Over {
					f.Label = "end of " + f.Label
				}
				words = append(words, f.Label)
			}
			g.Expect(strings.Join(words, ",")).To(Equal(c.words))
			g.Expect(m.Reason).To(Equal(c.reason))
		})
	}
}

// The change of an event of Health is its ARN. Without one it is its type and start, and a long one is a digest.
func TestChange(t *testing.T) {
	g := NewWithT(t)
	fact := func(detail string) message.Fact {
		m, err := message.Decode(fmt.Appendf(nil, `{"source":"aws.health","detail-type":"AWS Health Event","time":"2026-01-10T10:00:00Z","detail":{"service":"EC2","eventTypeCategory":"scheduledChange",%s,`+
			`"affectedEntities":[{"entityValue":"i-0aaaaaaaaaaaaaaa1"}]}}`, detail), sent)
		g.Expect(err).NotTo(HaveOccurred())
		return m.Facts[0]
	}
	start := `"eventTypeCode":"REBOOT","startTime":"Sat, 31 Jan 2026 02:00:00 GMT"`
	open, end := fact(`"eventArn":"arn:aws:health:x",`+start), fact(`"eventArn":"arn:aws:health:x","statusCode":"closed",`+start)
	g.Expect(open.Change).To(Equal("arn:aws:health:x"))
	g.Expect(open.Over).To(BeFalse())
	g.Expect(open.Deadline).To(Equal(time.Date(2026, 1, 31, 2, 0, 0, 0, time.UTC)))
	g.Expect(end.Change).To(Equal(open.Change))
	g.Expect(end.Over).To(BeTrue())
	g.Expect(end.Deadline).To(BeZero(), "nothing is due any more")
	g.Expect(end.Rank).To(BeNumerically(">", open.Rank))
	g.Expect(end.Urgent()).To(BeFalse())
	g.Expect(fact(start).Change).To(Equal("REBOOT/Sat, 31 Jan 2026 02:00:00 GMT"))
	long := fact(`"eventArn":"` + strings.Repeat("a", 2000) + `"`).Change
	g.Expect(len(long)).To(BeNumerically("<", 100))
	g.Expect(fact(`"eventArn":"` + strings.Repeat("a", 2001) + `"`).Change).NotTo(Equal(long))
}

// A direct notification is converted to an EventBridge event.
func TestDirectEvent(t *testing.T) {
	g := NewWithT(t)
	raw := `{"LifecycleTransition":"autoscaling:EC2_INSTANCE_LAUNCHING","AutoScalingGroupName":"g","EC2InstanceId":"i-1234567890abcdef0","Time":"2026-01-10T10:00:00.5Z",` +
		`"AccountId":"123456789012","RequestId":"r","AutoScalingGroupARN":"arn:aws:autoscaling:eu-west-1:123456789012:autoScalingGroup:u:autoScalingGroupName/g"}`
	m, err := message.Decode([]byte(raw), sent)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.Event.DetailType).To(Equal("EC2 Instance-launch Lifecycle Action"))
	g.Expect(m.Event.Source).To(Equal("aws.autoscaling"))
	g.Expect(m.Event.ID).To(Equal("r"))
	g.Expect(m.Facts[0].Region).To(Equal("eu-west-1"))
	g.Expect(m.Facts[0].GroupARN).To(HaveSuffix("/g"))
	g.Expect(m.Facts[0].Time).To(Equal(time.Date(2026, 1, 10, 10, 0, 0, 5e8, time.UTC)))
}

// An implausible time is replaced by that of SQS, so that the event does not win.
func TestTime(t *testing.T) {
	g := NewWithT(t)
	for text, guessed := range map[string]bool{
		"2026-01-31T23:59:59Z": false, "2026-02-01T00:04:59Z": false, "2026-02-01T00:05:01Z": true, "": true, "yesterday": true, "0001-01-01T00:00:00Z": true,
	} {
		m, err := message.Decode(fmt.Appendf(nil, `{"source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","time":%q,`+
			`"detail":{"instance-id":"i-1234567890abcdef0","state":"running"}}`, text), sent)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(m.Facts[0].Guessed).To(Equal(guessed), text)
		if guessed {
			g.Expect(m.Facts[0].Time).To(Equal(sent))
		}
	}
}

// EventBridgeEvent is unchanged after a round trip, for all forms of resources.
func TestEventBridgeEvent(t *testing.T) {
	g := NewWithT(t)
	var e, again message.EventBridgeEvent
	g.Expect(json.Unmarshal(body(t, "ec2-capacity-reservation-interruption.json"), &e)).To(Succeed())
	g.Expect(e.Resources).To(Equal([]string{"arn:aws:ec2:us-east-1:123456789012:instance/i-1234567890abcdef0"}))
	raw, err := json.Marshal(e)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Unmarshal(raw, &again)).To(Succeed())
	g.Expect(again.Resources).To(Equal(e.Resources))
	g.Expect(string(raw)).To(ContainSubstring(`"detail-type":"EC2 Capacity Reservation Instance Interruption Warning"`))
}

// For any body: no panic, one of three results, valid labels, and the same result twice.
func FuzzDecode(f *testing.F) {
	for _, fixture := range manifest(f) {
		f.Add(body(f, fixture.File))
	}
	f.Add([]byte(`{"Type":"Notification","TopicArn":"t","Message":"{}"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := message.Decode(raw, sent)
		switch m.Disposition {
		case message.DeadLetter:
			if err == nil || len(m.Facts) > 0 {
				t.Fatalf("%+v %v", m, err)
			}
		case message.Ignore:
			if err != nil || len(m.Facts) > 0 || m.Reason == "" {
				t.Fatalf("%+v %v", m, err)
			}
		case message.Apply:
			if err != nil || len(m.Facts) == 0 {
				t.Fatalf("%+v %v", m, err)
			}
		default:
			t.Fatalf("%+v", m)
		}
		for _, fact := range m.Facts {
			if !labelValue.MatchString(fact.Label) || fact.Rank == 0 || fact.ID == "" || fact.InstanceID == "" && fact.GroupName == "" || fact.Time.IsZero() {
				t.Fatalf("%+v", fact)
			}
		}
		again, _ := message.Decode(raw, sent)
		if fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", m) {
			t.Fatalf("not the same twice: %+v, %+v", m, again)
		}
	})
}
