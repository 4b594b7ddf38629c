package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

const (
	fleetNamespace = "machines"
	capaGroup      = "infrastructure.cluster.x-k8s.io"
	homeAccount    = "111122223333"
	spotInstance   = "i-0000000000000000a"
)

// ages are the parts of an explanation that depend on the time of the test.
var ages = regexp.MustCompile(`[0-9a-z]+ ago|on https://[0-9.:]+`)

// goldenText compares a text with a file of testdata.
func goldenText(t *testing.T, name, text string) {
	t.Helper()
	g := NewWithT(t)
	file := filepath.Join("testdata", "explain", name+".txt")
	text = ages.ReplaceAllString(text, "AGE")
	if *update {
		g.Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(file, []byte(text), 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(Equal(string(want)), "go test ./cmd/capstan/cli -run TestStatusAndExplain -update")
}

// put creates an object of Cluster API.
func (from *readFrom) put(t *testing.T, apiVersion, kind, namespace, name string, meta, spec map[string]any) *unstructured.Unstructured {
	t.Helper()
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	for key, value := range meta {
		metadata[key] = value
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata, "spec": spec}}
	NewWithT(t).Expect(from.c.Create(t.Context(), u)).To(Succeed())
	return u
}

// machine creates an AWSMachine.
func (from *readFrom) machine(t *testing.T, cluster, name, id string, labels, annotations map[string]any) *unstructured.Unstructured {
	t.Helper()
	all := map[string]any{"cluster.x-k8s.io/cluster-name": cluster}
	for key, value := range labels {
		all[key] = value
	}
	spec := map[string]any{"instanceType": "m5.large"}
	if id != "" {
		spec["instanceID"] = id
	}
	return from.put(t, capaGroup+"/v1beta2", "AWSMachine", fleetNamespace, name, map[string]any{"labels": all, "annotations": annotations}, spec)
}

// source creates an EventingBackend with role source, whose condition Ready has a status.
func (from *readFrom) source(t *testing.T, name, region string, ready bool, accounts string) {
	t.Helper()
	g := NewWithT(t)
	value := func(v any) eventingv1.ConfigValue {
		raw, err := json.Marshal(v)
		g.Expect(err).NotTo(HaveOccurred())
		return eventingv1.ConfigValue{Raw: raw}
	}
	b := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: defaultHubNamespace, Name: name}}
	b.Spec.Type = "sqs"
	b.Spec.Config = []eventingv1.ConfigEntry{{"role": value("source")}, {"queueUrl": value("https://sqs." + region + ".amazonaws.com/" + homeAccount + "/" + name)}}
	if accounts != "" {
		b.Spec.Config = append(b.Spec.Config, eventingv1.ConfigEntry{"accounts": value([]string{accounts})})
	}
	if name == "ireland" {
		b.Spec.Config = append(b.Spec.Config, eventingv1.ConfigEntry{"handlers": value([]string{"drainer"})})
	}
	g.Expect(from.c.Create(t.Context(), b)).To(Succeed())
	condition := eventingv1.Condition{Type: eventingv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now()}
	if !ready {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "BackendNotReady", "AccessDenied: attach the policy."
	}
	b.Status.ObservedGeneration, b.Status.Conditions = b.Generation, []eventingv1.Condition{condition}
	g.Expect(from.c.Status().Update(t.Context(), b)).To(Succeed())
}

// ec2Event is an event of an instance, of minutes after ten.
func ec2Event(id, detailType, instance, more string, minute int) string {
	return fmt.Sprintf(`{"version":"0","id":%q,"detail-type":%q,"source":"aws.ec2","account":"111122223333","time":"2026-01-10T10:%02d:00Z","region":"eu-west-1","resources":[],"detail":{"instance-id":%q%s}}`,
		id, detailType, minute, instance, more)
}

func stateEvent(id, instance, word string, minute int) string {
	return ec2Event(id, "EC2 Instance State-change Notification", instance, `,"state":"`+word+`"`, minute)
}

// guardRecord is a record of a guard, of minutes after ten.
func guardRecord(kind, label string, rank, minute int) string {
	return fmt.Sprintf(`{"word":%q,"kind":%q,"time":"2026-01-10T10:%02d:00Z","rank":%d,"id":"e-%s"}`, label, kind, minute, rank, label)
}

func guardOf(instance, state string, notices ...string) string {
	return fmt.Sprintf(`{"instance":%q,"state":%s,"notices":[%s]}`, instance, state, strings.Join(notices, ","))
}

const keys = "instancestate.capstan.dev/"

// explainMember explains an object of a cluster that has no EventingBackends, as a self-managed one.
func (from *readFrom) explainMember(t *testing.T) {
	g := NewWithT(t)
	g.Expect(from.c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleetNamespace}})).To(Succeed())
	m := from.machine(t, "prod", "member", spotInstance, nil, nil)
	goldenText(t, "member", from.explained(t, "awsmachine", "member", ""))
	g.Expect(from.c.Delete(t.Context(), m)).To(Succeed())
}

// explained runs the command for an object, with an event unless it is empty.
func (from *readFrom) explained(t *testing.T, kind, name, event string) string {
	t.Helper()
	g := NewWithT(t)
	args := []string{"explain", kind, fleetNamespace + "/" + name}
	if event != "" {
		file := filepath.Join(t.TempDir(), "event")
		g.Expect(os.WriteFile(file, []byte(event), 0o600)).To(Succeed())
		args = append(args, "--event="+file)
	}
	code, out, errOut := command(t, from.admin, args...)
	g.Expect(code).To(BeZero(), errOut)
	g.Expect(errOut).To(BeEmpty())
	return out
}

func (from *readFrom) explainInstance(t *testing.T) {
	g := NewWithT(t)
	code, _, errOut := command(t, from.admin, "explain", "awsmachine", fleetNamespace+"/none")
	g.Expect(code).To(Equal(1))
	g.Expect(errOut).To(ContainSubstring("AWSMachine machines/none does not exist at https://"))

	const core = "cluster.x-k8s.io/v1beta2"
	cluster := func(name, region, identity string, meta map[string]any) {
		from.put(t, capaGroup+"/v1beta2", "AWSCluster", fleetNamespace, name, nil, map[string]any{"region": region, "identityRef": map[string]any{"kind": "AWSClusterRoleIdentity", "name": identity}})
		from.put(t, core, "Cluster", fleetNamespace, name, meta, map[string]any{"infrastructureRef": map[string]any{"apiGroup": capaGroup, "kind": "AWSCluster", "name": name}})
	}
	identity := func(name string, allowed map[string]any) {
		from.put(t, capaGroup+"/v1beta2", "AWSClusterRoleIdentity", "", name, nil, map[string]any{
			"allowedNamespaces": allowed, "roleARN": "arn:aws:iam::111122223333:role/" + name, "sourceIdentityRef": map[string]any{"kind": "AWSClusterControllerIdentity", "name": "default"},
		})
	}
	from.put(t, capaGroup+"/v1beta2", "AWSClusterControllerIdentity", "", "default", nil, map[string]any{"allowedNamespaces": map[string]any{}})
	identity("fleet", map[string]any{})
	identity("elsewhere", map[string]any{"list": []any{"apps"}})
	cluster("prod", "eu-west-1", "fleet", nil)
	cluster("far", "ap-south-1", "fleet", nil)
	cluster("ohio", "us-east-2", "fleet", nil)
	cluster("refused", "eu-west-1", "elsewhere", map[string]any{"annotations": map[string]any{"cluster.x-k8s.io/paused": ""}})
	quiet := from.machine(t, "prod", "quiet", "i-0000000000000000b", nil, nil)
	goldenText(t, "no-source", from.explained(t, "awsmachine", "quiet", ""))
	from.source(t, "ireland", "eu-west-1", true, "")
	from.source(t, "ohio", "us-east-2", false, "")
	from.source(t, "others", "eu-west-1", true, "444455556666")

	spot := guardOf(spotInstance, guardRecord("state-change", "running", 20, 1), guardRecord("rebalance", "rebalance-recommended", 30, 2), guardRecord("spot-interruption", "spot-interruption-terminate", 70, 3))
	from.machine(t, "prod", "spot", spotInstance, map[string]any{"ec2-instance-state": "spot-interruption-terminate"}, map[string]any{
		keys + "guard": spot, keys + "source": "capstan-system/ireland",
		keys + "event":    ec2Event("e-spot-interruption-terminate", "EC2 Spot Instance Interruption Warning", spotInstance, `,"instance-action":"terminate"`, 3),
		keys + "handlers": `{"event":"e-spot-interruption-terminate","handlers":["drainer"],"until":"2099-01-10T10:05:00Z"}`,
	})
	labelled := func(name, id, label, guard string) *unstructured.Unstructured {
		return from.machine(t, "prod", name, id, map[string]any{"ec2-instance-state": label}, map[string]any{keys + "guard": guard})
	}
	labelled("ended", "i-0000000000000000c", "terminated", guardOf("i-0000000000000000c", guardRecord("state-change", "terminated", 90, 5)))
	labelled("overwritten", "i-0000000000000000d", "stopped", guardOf("i-0000000000000000d", guardRecord("state-change", "running", 20, 5)))
	labelled("replaced", "i-0000000000000000e", "terminated", guardOf("i-00000000000000old", guardRecord("state-change", "terminated", 90, 5)))
	labelled("unreadable", "i-0000000000000000f", "running", "{")
	from.machine(t, "prod", "new", "", nil, nil)
	from.machine(t, "far", "far", "i-00000000000000010", nil, nil)
	from.machine(t, "ohio", "unready", "i-00000000000000011", nil, nil)
	from.machine(t, "refused", "refused", "i-00000000000000012", nil, nil)
	lost := labelled("lost", "i-00000000000000013", "running", guardOf("i-00000000000000013", guardRecord("state-change", "running", 20, 5)))
	g.Expect(unstructured.SetNestedField(lost.Object, "stopped", "status", "instanceState")).To(Succeed())
	g.Expect(from.c.Status().Update(t.Context(), lost)).To(Succeed())
	deleted := from.put(t, capaGroup+"/v1beta2", "AWSMachine", fleetNamespace, "deleted", map[string]any{"finalizers": []any{"test/finalizer"}}, map[string]any{"instanceType": "m5.large", "instanceID": "i-00000000000000014"})
	g.Expect(from.c.Delete(t.Context(), deleted)).To(Succeed())
	g.Expect(from.c.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: fleetNamespace, Name: "quiet.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "AWSMachine", Namespace: fleetNamespace, Name: "quiet", UID: quiet.GetUID()},
		Reason:         "SuccessfulCreate", Type: corev1.EventTypeNormal, Message: "Created new instance", LastTimestamp: metav1.Now(),
	})).To(Succeed())
	for _, name := range []string{"quiet", "spot", "ended", "overwritten", "replaced", "unreadable", "new", "far", "unready", "refused", "lost", "deleted"} {
		goldenText(t, name, from.explained(t, "awsmachine", name, ""))
	}

	const arn = "arn:aws:autoscaling:eu-west-1:111122223333:autoScalingGroup:u:autoScalingGroupName/pool"
	pool := map[string]any{"minSize": int64(0), "maxSize": int64(3), "awsLaunchTemplate": map[string]any{"instanceType": "m5.large", "ami": map[string]any{}},
		"providerID": arn, "providerIDList": []any{"aws:///eu-west-1a/i-00000000000000020", "aws:///eu-west-1a/" + spotInstance}}
	from.put(t, capaGroup+"/v1beta2", "AWSMachinePool", fleetNamespace, "pool", map[string]any{
		"labels":      map[string]any{"cluster.x-k8s.io/cluster-name": "prod", "asg-instance-state": "launched"},
		"annotations": map[string]any{keys + "guard": `{"newest":` + guardRecord("asg-activity", "launched", 22, 3) + `}`},
	}, pool)
	goldenText(t, "pool", from.explained(t, "awsmachinepool", "pool", ""))

	from.effects(t)
	from.explainAsTenant(t)
}

// effects covers what the hub would do with events, one line for each.
func (from *readFrom) effects(t *testing.T) {
	g := NewWithT(t)
	wrap := func(inner string) string {
		raw, err := json.Marshal(map[string]string{"Type": "Notification", "TopicArn": "arn:aws:sns:eu-west-1:111122223333:t", "Message": inner})
		g.Expect(err).NotTo(HaveOccurred())
		return string(raw)
	}
	replaced := func(event, old, by string) string { return strings.Replace(event, old, by, 1) }
	rebalance := func(id string, minute int) string {
		return ec2Event(id, "EC2 Instance Rebalance Recommendation", spotInstance, "", minute)
	}
	ending := stateEvent("e-1", spotInstance, "shutting-down", 4)
	group := func(more string) string {
		return `{"LifecycleTransition":"autoscaling:EC2_INSTANCE_TERMINATING","AccountId":"111122223333","RequestId":"r","Time":"2026-01-10T10:04:00Z","EC2InstanceId":"i-00000000000000020","LifecycleActionToken":"t","LifecycleHookName":"h",` + more + `}`
	}
	const activity = `"AutoScalingGroupARN":"arn:aws:autoscaling:eu-west-1:111122223333:autoScalingGroup:u:autoScalingGroupName/pool","AutoScalingGroupName":"pool"`
	var all strings.Builder
	for _, c := range []struct{ name, kind, object, event string }{
		{"newer state", "awsmachine", "spot", ending},
		{"wrapped by SNS", "awsmachine", "spot", wrap(ending)},
		{"older state", "awsmachine", "spot", stateEvent("e-2", spotInstance, "pending", 0)},
		{"state before the notice", "awsmachine", "spot", stateEvent("e-2", spotInstance, "stopped", 2)},
		{"notice of a lower rank", "awsmachine", "spot", rebalance("e-3", 5)},
		{"older notice of the kind", "awsmachine", "spot", rebalance("e-0", 2)},
		{"the same event", "awsmachine", "spot", stateEvent("e-running", spotInstance, "running", 1)},
		{"other account", "awsmachine", "spot", replaced(ending, homeAccount, "999900001111")},
		{"account of another source", "awsmachine", "spot", replaced(ending, homeAccount, "444455556666")},
		{"other region", "awsmachine", "spot", replaced(ending, `"region":"eu-west-1"`, `"region":"us-east-1"`)},
		{"other instance", "awsmachine", "spot", stateEvent("e-1", "i-0000000000000009a", "running", 4)},
		{"group", "awsmachine", "spot", group(activity)},
		{"malformed", "awsmachine", "spot", `{"source":"aws.ec2"`},
		{"other detail-type", "awsmachine", "spot", replaced(ending, "EC2 Instance State-change Notification", "EBS Volume Notification")},
		{"no time", "awsmachine", "spot", replaced(ending, `"time":"2026-01-10T10:04:00Z",`, "")},
		{"after the end", "awsmachine", "ended", stateEvent("e-1", "i-0000000000000000c", "running", 9)},
		{"deleted object", "awsmachine", "deleted", stateEvent("e-1", "i-00000000000000014", "running", 9)},
		{"the label again", "awsmachine", "lost", stateEvent("e-9", "i-00000000000000013", "running", 9)},
		{"unreadable guard", "awsmachine", "unreadable", stateEvent("e-9", "i-0000000000000000f", "stopping", 9)},
		{"direct notification", "awsmachinepool", "pool", group(activity)},
		{"other group", "awsmachinepool", "pool", group(`"AutoScalingGroupName":"other"`)},
		{"instance of the pool", "awsmachinepool", "pool", stateEvent("e-1", "i-00000000000000020", "stopped", 4)},
		{"older event of the pool", "awsmachinepool", "pool", stateEvent("e-1", "i-00000000000000020", "stopped", 1)},
		{"instance with an own AWSMachine", "awsmachinepool", "pool", ending},
	} {
		fmt.Fprintf(&all, "%s, %s %s:\n", c.name, c.kind, c.object)
		lines := 0
		for _, line := range strings.Split(from.explained(t, c.kind, c.object, c.event), "\n") {
			if strings.HasPrefix(line, "Event: ") {
				all.WriteString("  " + line + "\n")
				lines++
			}
		}
		g.Expect(lines).NotTo(BeZero(), c.name)
	}
	goldenText(t, "effects", regexp.MustCompile(`shutting-down of 20[0-9TZ:-]+ `).ReplaceAllString(all.String(), "shutting-down of TIME "))
	for wrong, want := range map[string]string{"none": "name a file with the body of a message", "empty": "is empty: give the body of one message"} {
		file := filepath.Join(t.TempDir(), wrong)
		if wrong == "empty" {
			g.Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
		}
		code, _, errOut := command(t, from.admin, "explain", "awsmachine", fleetNamespace+"/spot", "--event="+file)
		g.Expect(code).To(Equal(1))
		g.Expect(errOut).To(ContainSubstring(want))
	}
}

// explainAsTenant: what a user may not read is named, and the rest is explained.
func (from *readFrom) explainAsTenant(t *testing.T) {
	g := NewWithT(t)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: "machines"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{capaGroup, "cluster.x-k8s.io"}, Resources: []string{"awsmachines", "awsclusters", "clusters"}, Verbs: []string{"get", "list"}},
	}}
	g.Expect(from.c.Create(t.Context(), role)).To(Succeed())
	g.Expect(from.c.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: "machines"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "machines"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}},
	})).To(Succeed())
	tenant, err := from.UserKubeconfig("", "tenant")
	g.Expect(err).NotTo(HaveOccurred())
	code, out, errOut := command(t, tenant, "explain", "awsmachine", fleetNamespace+"/spot")
	g.Expect(code).To(BeZero(), errOut)
	g.Expect(errOut).To(ContainSubstring("The Events of AWSMachine machines/spot are missing: "))
	goldenText(t, "tenant", out)
}
