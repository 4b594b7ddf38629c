package instancestate

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/instancestate/queue"
	"github.com/capstan-hub/capstan/internal/netguard"
)

// settings of a source, from its EventingBackend.
type settings struct {
	schema.SQSQueue
	endpoint               string
	role                   awsconfig.Role
	accounts, remediate    []string
	wait, visibility       time.Duration
	pollersMin, pollersMax int
	deadLetters            string
	declared               []string
	handlerTimeout         time.Duration
}

func settingsOf(c schema.Config) settings {
	return settings{
		SQSQueue: schema.QueueOf(c.String),
		endpoint: c.String("endpoint"),
		role:     awsconfig.Role{ARN: c.String("roleArn"), ExternalID: c.String("externalId")},
		accounts: c.List("accounts"), remediate: c.List("remediate"),
		wait:       time.Duration(c.Int("waitTimeSeconds")) * time.Second,
		visibility: time.Duration(c.Int("visibilityTimeout")) * time.Second,
		pollersMin: int(c.Int("pollersMin")), pollersMax: int(c.Int("pollersMax")),
		deadLetters: c.String("deadLetterQueueUrl"),
		declared:    c.List("handlers"), handlerTimeout: c.Duration("handlerTimeout"),
	}
}

// origin returns the origin of the messages of a source, as far as its configuration says it.
func (s settings) origin(source types.NamespacedName, home string) origin {
	region, account := s.In(home)
	return origin{source: source.String(), accounts: s.accounts, account: account, region: region, remediate: s.remediate, declared: s.declared, handlerTimeout: s.handlerTimeout}
}

// queueID identifies a queue. URLs of one queue may have different hosts of AWS.
func queueID(region, queueURL string) string {
	u, err := url.Parse(queueURL)
	if err != nil {
		return queueURL
	}
	host := u.Host
	if strings.Contains(host, ".amazonaws.com") || strings.HasSuffix(host, ".api.aws") {
		host = ""
	}
	return region + " " + host + u.Path
}

// source is a queue with its consumer.
type source struct {
	name types.NamespacedName
	// created is when its EventingBackend was created.
	created  time.Time
	config   schema.Config
	origin   origin
	consumer *queue.Consumer
	stop     context.CancelFunc
	r        *Labeler
	// changed is called when the status has changed.
	changed func()

	// mu guards the fields that follow.
	mu sync.Mutex
	// letters is set when the queue had dead letters at the last check.
	letters bool
	// lost is how many messages were deleted without an effect, for a permanent reason, and last
	// the last one of them.
	lost int64
	last eventingv1.GivenUp
	// tested is the last test event, and testedAt when it was received; nil before the first one.
	tested   *eventingv1.ReceivedTest
	testedAt time.Time
}

// newSource returns a source whose consumer does not run yet.
func newSource(r *Labeler, of *eventingv1.EventingBackend, config schema.Config, changed func()) *source {
	name := client.ObjectKeyFromObject(of)
	s := settingsOf(config)
	origin := s.origin(name, r.AWS.Region())
	region := origin.region
	made := &source{name: name, created: of.CreationTimestamp.Time, config: config, r: r, changed: changed, origin: origin}
	calls := sqs.NewFromConfig(r.AWS.In(region, s.role), func(o *sqs.Options) {
		if s.endpoint != "" {
			o.BaseEndpoint = aws.String(s.endpoint)
			o.HTTPClient = r.AWS.Guarded(netguard.Policy{AllowLoopback: r.AllowLoopback})
		}
	})
	made.consumer = queue.New(queue.Options{
		Client: calls, QueueURL: s.URL, QueueName: s.Name, Account: s.Owner,
		WaitTime: s.wait, VisibilityTimeout: s.visibility, PollersMin: s.pollersMin, PollersMax: s.pollersMax,
		DeadLetterQueueURL: s.deadLetters,
		Claim:              func() error { return r.sources.claim(made) },
		Handler: func(ctx context.Context, d *queue.Delivery) {
			if r.sources.claim(made) != nil {
				d.Release(0) // It was received for another source.
				return
			}
			if d.More {
				r.lanes.moreToRead()
			}
			r.processMessage(ctx, made.from(), d.Message, d.Sent, d)
		},
		Observer: made, Clock: r.Clock, Log: r.Logger.WithValues("source", name.String()),
	})
	return made
}

// account returns that of the queue: as configured, else as its URL names it; empty until it is
// known.
func (s *source) account() string {
	if s.origin.account != "" {
		return s.origin.account
	}
	url, _ := s.consumer.URL()
	_, account := schema.SQSQueue{URL: url}.In("")
	return account
}

// from returns the origin of a message of the queue.
func (s *source) from() origin {
	from := s.origin
	from.account, from.of = s.account(), s
	return from
}

// queue returns the identity of the queue, empty until it is known, and its name. asked is false
// until the first attempt to find the queue has ended.
func (s *source) queue() (id, name string, asked bool) {
	url, asked := s.consumer.URL()
	if url == "" {
		return "", s.config.String("queueName"), asked
	}
	return queueID(s.origin.region, url), url[strings.LastIndexByte(url, '/')+1:], true
}

// precedes reports whether a source reads a queue in place of another one: the older one does.
func (s *source) precedes(other *source) bool {
	return cmp.Or(s.created.Compare(other.created), cmp.Compare(s.name.String(), other.name.String())) < 0
}

// run reads the queue until the context ends, when the index is ready.
func (s *source) run(ctx context.Context) {
	select {
	case <-s.r.ready:
		s.consumer.Run(ctx)
	case <-ctx.Done():
	}
}

// newLetters returns the number of dead letters if there were none at the last call, else 0.
func (s *source) newLetters() int {
	status := s.consumer.Status()
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.letters
	s.letters = status.DeadLetters > 0
	if before {
		return 0
	}
	return status.DeadLetters
}

// takeOver continues the counts of the source that it replaces.
func (s *source) takeOver(old *source) {
	old.mu.Lock()
	lost, last, tested, testedAt := old.lost, old.last, old.tested, old.testedAt
	old.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost, s.last, s.tested, s.testedAt = s.lost+lost, last, tested, testedAt
}

// gaveUp counts a message that is deleted without an effect.
func (s *source) gaveUp(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost++
	s.last = eventingv1.GivenUp{Time: metav1.NewTime(s.r.Clock.Now().Truncate(time.Second)), Reason: reason}
}

// crowd is how many messages may be received and not settled while a self-managed cluster is not
// read. SQS allows 120,000 for a queue, and delivers none of the others above that.
const crowd = 50_000

// crowded reports whether the queue has so many of them that further ones would stop it.
func (s *source) crowded() bool { return s != nil && s.consumer.Status().NotVisible >= crowd }

// delivery returns the state of the events.
func (s *source) delivery() eventingv1.Delivery {
	status, oldest := s.consumer.Status(), s.consumer.Oldest()
	s.mu.Lock()
	defer s.mu.Unlock()
	d := eventingv1.Delivery{
		Waiting: int64(status.Visible), InFlight: int64(status.NotVisible), DeadLetters: int64(status.DeadLetters), GivenUp: s.lost,
		OldestWaiting: eventingv1.DeliveryTime(oldest), LastSuccess: eventingv1.DeliveryTime(status.LastReceive),
	}
	if s.lost > 0 {
		last := s.last
		d.LastGivenUp = &last
	}
	d.LastTest = s.tested.DeepCopy()
	return d
}

// Count implements queue.Observer.
func (s *source) Count(what queue.Count, n int) {
	s.r.metrics.messages.WithLabelValues(s.origin.source, string(what)).Add(float64(n))
	if what == queue.Discarded {
		s.gaveUp("malformed")
	}
}

// Waited implements queue.Observer.
func (s *source) Waited(d time.Duration) {
	s.r.metrics.queueWait.WithLabelValues(s.origin.source).Observe(max(0, d.Seconds()))
}

// Malformed implements queue.Observer.
func (s *source) Malformed(reason error, sample string) {
	s.r.metrics.malformed.WithLabelValues(s.origin.source).Inc()
	s.r.events.malformed(s.origin.source, reason, sample)
}

// StatusChanged implements queue.Observer.
func (s *source) StatusChanged() { s.changed() }

// parseSource parses the name of a source in an origin.
func parseSource(source string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(source, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}
