package annotation_test

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/capstan-hub/capstan/hub/annotator/annotation"
)

// template is the node that an autoscaler makes of annotations.
type template struct {
	cpu, memory, disk, pods int64
	devices                 map[string]int64
	labels                  map[string]string
}

// upstream reads annotations by the rules of cluster-autoscaler's clusterapi provider
// (reference/annotator.md 3.1), for an infrastructure object without status.nodeInfo:
// from 1.35 on arch and os are then empty unless the labels annotation has them.
func upstream(annotations map[string]string) (template, error) {
	const p = "capacity.cluster-autoscaler.kubernetes.io/"
	t := template{pods: 110, devices: map[string]int64{}, labels: map[string]string{"kubernetes.io/arch": "", "kubernetes.io/os": ""}}
	for key, into := range map[string]*int64{"cpu": &t.cpu, "memory": &t.memory, "ephemeral-disk": &t.disk} {
		if s, ok := annotations[p+key]; ok {
			q, err := resource.ParseQuantity(s)
			if err != nil {
				return t, fmt.Errorf("%s: %w", key, err)
			}
			*into = q.Value()
		}
	}
	count := int64(0)
	for key, into := range map[string]*int64{"gpu-count": &count, "maxPods": &t.pods} {
		if s, ok := annotations[p+key]; ok {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return t, fmt.Errorf("%s: %w", key, err)
			}
			*into = n
		}
	}
	if kind := annotations[p+"gpu-type"]; kind != "" && count > 0 {
		t.devices[kind] = count
	}
	readLabels(annotations[p+"labels"], t.labels)
	if t.cpu == 0 || t.memory == 0 {
		return t, fmt.Errorf("the group cannot scale from zero: cpu %d, memory %d", t.cpu, t.memory)
	}
	return t, nil
}

// openshift reads them by the rules of OpenShift's fork (3.2): the legacy keys stand in
// where upstream's are absent.
func openshift(annotations map[string]string) (template, error) {
	const legacy = "machine.openshift.io/"
	t, err := upstream(annotations)
	if err != nil && (t.cpu > 0 || t.memory > 0) {
		return t, err
	}
	if t.cpu == 0 {
		q, err := resource.ParseQuantity(annotations[legacy+"vCPU"])
		if err != nil {
			return t, fmt.Errorf("vCPU: %w", err)
		}
		t.cpu = q.Value()
	}
	if t.memory == 0 {
		n, err := strconv.ParseInt(annotations[legacy+"memoryMb"], 10, 64)
		if err != nil {
			return t, fmt.Errorf("memoryMb: %w", err)
		}
		t.memory = n << 20
	}
	if len(t.devices) == 0 {
		n, err := strconv.ParseInt(annotations[legacy+"GPU"], 10, 64)
		if err != nil {
			return t, fmt.Errorf("GPU: %w", err)
		}
		if n > 0 {
			t.devices["nvidia.com/gpu"] = n
		}
	}
	return t, nil
}

// readLabels splits at commas and at the first "=", trims nothing and skips the rest.
func readLabels(s string, into map[string]string) {
	for _, token := range strings.Split(s, ",") {
		if pair := strings.SplitN(token, "=", 2); len(pair) == 2 {
			into[pair[0]] = pair[1]
		}
	}
}

// only are the annotations of some keys.
func only(annotations map[string]string, prefix string) map[string]string {
	out := map[string]string{}
	for k, v := range annotations {
		if strings.HasPrefix(k, prefix) || k == annotation.Labels {
			out[k] = v
		}
	}
	return out
}
