package provision_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

// update writes the golden files: go test ./hub/instancestate/provision -update
var update = flag.Bool("update", false, "write the golden files")

const (
	hubAccount = "111122223333"
	member     = "444455556666"
	hubRole    = "arn:aws:iam::999900001111:role/capstan-hub"
	// longest name of a region.
	region   = "ap-northeast-1"
	fixtures = "../testdata/aws-events"
)

var templates = map[string]func() ([]byte, error){
	"hub": func() ([]byte, error) { return provision.Hub(provision.Options{}) },
	"hub-alone": func() ([]byte, error) {
		return provision.Hub(provision.Options{Name: "events", HubRole: "capstan-hub"})
	},
	"hub-members": func() ([]byte, error) {
		return provision.Hub(provision.Options{Members: []string{"777788889999", member}, AssumedBy: hubRole, ExternalID: "capstan"})
	},
	"hub-organization": func() ([]byte, error) {
		return provision.Hub(provision.Options{Organization: "o-a1b2c3d4e5", AssumedBy: hubRole})
	},
	"member": func() ([]byte, error) { return provision.Member(provision.Options{}, hubAccount) },
}

func made(t *testing.T, name string) []byte {
	t.Helper()
	out, err := templates[name]()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return out
}

func TestTemplates(t *testing.T) {
	for name := range templates {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out := made(t, name)
			g.Expect(made(t, name)).To(Equal(out), "the same each time")
			golden := filepath.Join("testdata", name+".yaml")
			if *update {
				g.Expect(os.WriteFile(golden, out, 0o600)).To(Succeed())
			}
			want, err := os.ReadFile(golden)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(out)).To(Equal(string(want)))
		})
	}
}

// Two rules for an account and region, without instances, within EventBridge's bounds.
func TestTwoRules(t *testing.T) {
	for _, name := range []string{"hub", "hub-members", "hub-organization", "member"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			rules := deploy(t, made(t, name), hubAccount, region).of("AWS::Events::Rule")
			g.Expect(rules).To(HaveLen(2))
			for _, rule := range rules {
				pattern, err := json.Marshal(rule["EventPattern"])
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(len(pattern)).To(BeNumerically("<=", 2048))
				g.Expect(string(pattern)).NotTo(MatchRegexp(`i-[0-9a-f]|instance-id`))
				g.Expect(rule["State"]).To(Equal("ENABLED"))
				targets := rule["Targets"].([]any)
				g.Expect(targets).To(HaveLen(1))
				target := targets[0].(map[string]any)
				g.Expect(target["Arn"]).To(Equal("arn:aws:sqs:" + region + ":" + hubAccount + ":capstan"))
				g.Expect(target["DeadLetterConfig"]).To(HaveKeyWithValue("Arn", HavePrefix("arn:aws:sqs:"+region+":"+hubAccount+":capstan-")))
			}
		})
	}
}

// The rules match the fixtures that change labels, each by one rule, and no other events
// that EventBridge delivers.
func TestRulesMatchTheFixtures(t *testing.T) {
	g := NewWithT(t)
	rules := deploy(t, made(t, "hub"), hubAccount, region).of("AWS::Events::Rule")
	raw, err := os.ReadFile(filepath.Join(fixtures, "manifest.json"))
	g.Expect(err).NotTo(HaveOccurred())
	var all []struct{ File, Disposition string }
	g.Expect(json.Unmarshal(raw, &all)).To(Succeed())
	through, passed := 0, 0
	for _, f := range all {
		body, err := os.ReadFile(filepath.Join(fixtures, f.File))
		g.Expect(err).NotTo(HaveOccurred())
		var event map[string]any
		if json.Unmarshal(body, &event) != nil {
			continue // EventBridge delivers JSON.
		}
		if inner, wrapped := event["Message"].(string); wrapped {
			g.Expect(json.Unmarshal([]byte(inner), &event)).To(Succeed())
		}
		if event["detail-type"] == nil {
			continue // It does not come through EventBridge.
		}
		by := 0
		for _, rule := range rules {
			if matches(rule["EventPattern"].(map[string]any), event) {
				by++
			}
		}
		switch f.Disposition {
		case "delete-after-apply":
			through++
			g.Expect(by).To(Equal(1), f.File)
		case "delete-ignored":
			passed++
			g.Expect(by).To(BeZero(), f.File)
		}
	}
	// The ends of scheduled changes come by the same rule as their beginnings.
	raw, err = os.ReadFile(filepath.Join(fixtures, "maintenance.json"))
	g.Expect(err).NotTo(HaveOccurred())
	var courses []struct{ Files []string }
	g.Expect(json.Unmarshal(raw, &courses)).To(Succeed())
	for _, course := range courses {
		for _, file := range course.Files {
			body, err := os.ReadFile(filepath.Join(fixtures, file))
			g.Expect(err).NotTo(HaveOccurred())
			var event map[string]any
			g.Expect(json.Unmarshal(body, &event)).To(Succeed())
			by := 0
			for _, rule := range rules {
				if matches(rule["EventPattern"].(map[string]any), event) {
					by++
				}
			}
			g.Expect(by).To(Equal(1), file)
		}
	}
	g.Expect(courses).NotTo(BeEmpty())
	g.Expect(through).To(BeNumerically(">=", 10))
	g.Expect(passed).To(BeNumerically(">=", 1))
}

// The rules match every type of event that is read, and no other.
func TestRulesAndDecoderAgree(t *testing.T) {
	g := NewWithT(t)
	var through []string
	for _, rule := range deploy(t, made(t, "hub"), hubAccount, region).of("AWS::Events::Rule") {
		through = append(through, list(rule["EventPattern"].(map[string]any)["detail-type"])...)
	}
	var read []string
	for source, types := range message.EventTypes() {
		read = append(read, types...)
		for _, detailType := range types {
			m, _ := message.Decode(fmt.Appendf(nil, `{"source":%q,"detail-type":%q}`, source, detailType), sent)
			g.Expect(m.Reason).NotTo(Equal("detail-type"))
		}
	}
	g.Expect(through).To(ConsistOf(read))
}

// The senders to the queue: the two rules and the members' roles, only with TLS.
func TestQueuePolicies(t *testing.T) {
	rules := []any{
		"arn:aws:events:" + region + ":" + hubAccount + ":rule/capstan-instances",
		"arn:aws:events:" + region + ":" + hubAccount + ":rule/capstan-health",
	}
	for name, queues := range map[string]map[string]string{
		"hub":              {"QueuePolicy": "capstan", "DeadLetterQueuePolicy": "capstan-dead"},
		"hub-members":      {"QueuePolicy": "capstan", "DeadLetterQueuePolicy": "capstan-dead"},
		"hub-organization": {"QueuePolicy": "capstan", "DeadLetterQueuePolicy": "capstan-dead"},
		"member":           {"DeadLetterQueuePolicy": "capstan-undelivered"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := deploy(t, made(t, name), hubAccount, region)
			g.Expect(s.of("AWS::SQS::QueuePolicy")).To(HaveLen(len(queues)))
			for logical, queue := range queues {
				arn := "arn:aws:sqs:" + region + ":" + hubAccount + ":" + queue
				said := statements(s.properties(logical)["PolicyDocument"])
				for sid, statement := range said {
					g.Expect(statement["Resource"]).To(Equal(arn))
					if statement["Effect"] == "Allow" {
						g.Expect(list(statement["Action"])).To(Equal([]string{"sqs:SendMessage"}), sid)
						g.Expect(statement["Condition"]).NotTo(BeEmpty(), sid)
					}
				}
				g.Expect(said["RulesOfThisAccount"]["Principal"]).To(Equal(map[string]any{"Service": "events.amazonaws.com"}))
				g.Expect(said["RulesOfThisAccount"]["Condition"]).To(Equal(map[string]any{
					"StringEquals": map[string]any{"aws:SourceAccount": hubAccount}, "ArnEquals": map[string]any{"aws:SourceArn": rules},
				}))
				g.Expect(said["OnlyByTLS"]["Effect"]).To(Equal("Deny"))
				g.Expect(said["OnlyByTLS"]["Condition"]).To(Equal(map[string]any{"Bool": map[string]any{"aws:SecureTransport": "false"}}))
				members, has := said["RulesOfMembers"]
				g.Expect(has).To(Equal(logical == "QueuePolicy" && name != "hub"))
				if !has {
					continue
				}
				// A member's own stack makes the role that is let in.
				role := deploy(t, made(t, "member"), member, region).arn("EventsRole")
				like := members["Condition"].(map[string]any)["ArnLike"].(map[string]any)["aws:PrincipalArn"].(string)
				g.Expect(regexp.MustCompile("^"+strings.ReplaceAll(like, "*", "[^:]*")+"$").MatchString(role)).To(BeTrue(), "%s lets in %s", like, role)
				if name == "hub-members" {
					g.Expect(members["Principal"]).To(Equal(map[string]any{"AWS": []any{"arn:aws:iam::" + member + ":root", "arn:aws:iam::777788889999:root"}}))
				} else {
					g.Expect(members["Condition"]).To(HaveKeyWithValue("StringEquals", map[string]any{"aws:PrincipalOrgID": "o-a1b2c3d4e5"}))
				}
			}
		})
	}
}

// The role of a member's rules: one action, on the hub's queue of the same region.
func TestMembersRole(t *testing.T) {
	g := NewWithT(t)
	s := deploy(t, made(t, "member"), member, region)
	role := s.properties("EventsRole")
	g.Expect(role["Policies"]).To(HaveLen(1))
	send := statements(role["Policies"].([]any)[0].(map[string]any)["PolicyDocument"])
	g.Expect(send).To(HaveLen(1))
	g.Expect(list(send["Send"]["Action"])).To(Equal([]string{"sqs:SendMessage"}))
	g.Expect(send["Send"]["Resource"]).To(Equal("arn:aws:sqs:" + region + ":" + hubAccount + ":capstan"))
	trust := statements(role["AssumeRolePolicyDocument"])
	g.Expect(trust["RulesOfThisAccount"]["Principal"]).To(Equal(map[string]any{"Service": "events.amazonaws.com"}))
	g.Expect(trust["RulesOfThisAccount"]["Condition"]).To(HaveKeyWithValue("StringEquals", map[string]any{"aws:SourceAccount": member}))
	for _, rule := range s.of("AWS::Events::Rule") {
		g.Expect(rule["Targets"].([]any)[0]).To(HaveKeyWithValue("RoleArn", s.arn("EventsRole")))
	}
}

// The role for a hub of another account only trusts that hub, with the external id.
func TestConsumerRole(t *testing.T) {
	g := NewWithT(t)
	s := deploy(t, made(t, "hub-members"), hubAccount, region)
	role := s.properties("ConsumerRole")
	trust := statements(role["AssumeRolePolicyDocument"])
	g.Expect(trust).To(HaveLen(1))
	g.Expect(trust["Hub"]["Principal"]).To(Equal(map[string]any{"AWS": hubRole}))
	g.Expect(trust["Hub"]["Condition"]).To(Equal(map[string]any{"StringEquals": map[string]any{"sts:ExternalId": "capstan"}}))
	g.Expect(role["ManagedPolicyArns"]).To(Equal([]any{s.arn("ConsumerPolicy")}))
	g.Expect(role).NotTo(HaveKey("Policies"))

	alone := deploy(t, made(t, "hub-alone"), hubAccount, region)
	g.Expect(list(alone.properties("ConsumerPolicy")["Roles"])).To(Equal([]string{"capstan-hub"}))
	g.Expect(alone.of("AWS::IAM::Role")).To(BeEmpty())
}

// Options of the maximum length stay within the limits of AWS.
func TestBounds(t *testing.T) {
	g := NewWithT(t)
	o := provision.Options{Name: strings.Repeat("n", 32)}
	for i := range 40 {
		o.Members = append(o.Members, fmt.Sprintf("%012d", i))
	}
	hub, err := provision.Hub(o)
	g.Expect(err).NotTo(HaveOccurred())
	o.Members = nil
	sender, err := provision.Member(o, hubAccount)
	g.Expect(err).NotTo(HaveOccurred())
	for _, out := range [][]byte{hub, sender} {
		g.Expect(len(out)).To(BeNumerically("<", 51200), "the limit of a template without a bucket")
		s := deploy(t, out, hubAccount, region)
		for _, rule := range s.of("AWS::Events::Rule") {
			g.Expect(len(rule["Name"].(string))).To(BeNumerically("<=", 64))
		}
		for _, queue := range s.of("AWS::SQS::Queue") {
			g.Expect(len(queue["QueueName"].(string))).To(BeNumerically("<=", 80))
		}
		for _, role := range s.of("AWS::IAM::Role") {
			g.Expect(len(role["RoleName"].(string))).To(BeNumerically("<=", 64))
		}
		for _, policy := range s.of("AWS::SQS::QueuePolicy") {
			raw, err := json.Marshal(policy["PolicyDocument"])
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(raw)).To(BeNumerically("<=", 8192))
			g.Expect(len(policy["PolicyDocument"].(map[string]any)["Statement"].([]any))).To(BeNumerically("<=", 20))
			g.Expect(strings.Count(string(raw), ":root")).To(BeNumerically("<", 50))
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	many := make([]string, 41)
	for i := range many {
		many[i] = fmt.Sprintf("%012d", i)
	}
	for _, tc := range []struct {
		o    provision.Options
		says string
	}{
		{provision.Options{Name: "my queue"}, `--name: "my queue" must be 1 to 32 letters, digits and hyphens`},
		{provision.Options{Name: strings.Repeat("n", 33)}, "--name:"},
		{provision.Options{Name: "events.fifo"}, "--name:"},
		{provision.Options{Members: []string{"12345"}}, `--members: "12345" is not an account id of 12 digits`},
		{provision.Options{Members: []string{member, member}}, "--members: account " + member + " is listed twice"},
		{provision.Options{Members: many}, "--members: 41 accounts exceed the limit of 40 in the policy of a queue; set --organization"},
		{provision.Options{Organization: "acme"}, `--organization: "acme" is not the id of an organization, such as o-a1b2c3d4e5`},
		{provision.Options{Organization: "o-a1b2c3d4e5", Members: []string{member}}, "remove --members"},
		{provision.Options{HubRole: hubRole}, "--hub-role: \"" + hubRole + "\" is not the name of a role"},
		{provision.Options{AssumedBy: "capstan-hub"}, `--assumed-by: "capstan-hub" is not the ARN of a role or user`},
		{provision.Options{AssumedBy: hubRole, HubRole: "capstan-hub"}, "remove one of the two"},
		{provision.Options{ExternalID: "capstan"}, "--external-id: it is only used when a role is assumed; also set --assumed-by"},
		{provision.Options{AssumedBy: hubRole, ExternalID: "a b"}, `--external-id: "a b" must be`},
	} {
		g := NewWithT(t)
		_, err := provision.Hub(tc.o)
		g.Expect(err).To(MatchError(provision.ErrInvalid))
		g.Expect(err).To(MatchError(ContainSubstring(tc.says)))
	}
	g := NewWithT(t)
	_, err := provision.Hub(provision.Options{Name: "?", Members: []string{"1"}})
	g.Expect(err).To(MatchError(And(ContainSubstring("--name"), ContainSubstring("--members"))), "all at once")
	for _, tc := range []struct {
		hub  string
		o    provision.Options
		says string
	}{
		{"", provision.Options{}, `--member-of: "" is not an account id of 12 digits`},
		{hubAccount, provision.Options{Members: []string{member}}, "--member-of: members have no queue"},
		{hubAccount, provision.Options{HubRole: "capstan-hub"}, "--member-of: members have no queue"},
		{hubAccount, provision.Options{Name: "?"}, "--name"},
	} {
		_, err := provision.Member(tc.o, tc.hub)
		g.Expect(err).To(MatchError(provision.ErrInvalid))
		g.Expect(err).To(MatchError(ContainSubstring(tc.says)))
	}
}

// Members in another order result in the same template. The options are not changed.
func TestMembersInAnyOrder(t *testing.T) {
	g := NewWithT(t)
	given := []string{"777788889999", member}
	one, err := provision.Hub(provision.Options{Members: given})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(given[0]).To(Equal("777788889999"))
	slices.Reverse(given)
	other, err := provision.Hub(provision.Options{Members: given})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(other)).To(Equal(string(one)))
}
