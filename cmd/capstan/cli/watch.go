package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/explain"
)

// watchPace is the shortest time between two reads of --watch. Each read lists the objects, so it bounds the
// load of the API server.
const watchPace = time.Second

// watchStatus prints the rows of the environments, then each row that changes, until the context ends. After the first
// read, an API server that does not answer is asked again, and why says so: it restarts in each upgrade.
func watchStatus(ctx context.Context, c *cluster, q statusQuestion, out, why io.Writer) error {
	w := &statusWatch{cluster: c, question: q, out: out, shown: map[string]explain.Row{}}
	answers := true
	for {
		err := w.next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // A user ends a watch by an interrupt.
		case err == nil:
			answers = true
			continue
		case !w.began || !outage(err):
			return err
		}
		if answers {
			if _, err := fmt.Fprintf(why, "%v; trying again\n", err); err != nil {
				return err
			}
			answers = false
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchPace):
		}
	}
}

// statusWatch is a watch of rows.
type statusWatch struct {
	cluster  *cluster
	question statusQuestion
	out      io.Writer
	// began is set after the header was printed, and shown are the rows that were printed.
	began bool
	shown map[string]explain.Row
}

// next reads the rows, prints those that changed, and waits until there may be others.
func (w *statusWatch) next(ctx context.Context) error {
	fleet, at, err := readWithin(ctx, w.cluster, w.question)
	if err != nil {
		return err
	}
	rows, present := fleet.Rows(), map[string]bool{}
	var changed []explain.Row
	for _, row := range rows {
		present[row.Key()] = true
		if before, known := w.shown[row.Key()]; !known || !before.Same(&row) {
			changed = append(changed, row)
		}
		w.shown[row.Key()] = row
	}
	for key := range w.shown {
		if !present[key] {
			delete(w.shown, key)
		}
	}
	if len(changed) > 0 || !w.began {
		if err := writeRows(w.out, changed, w.question.output, !w.began, fleet.Now); err != nil {
			return err
		}
		w.began = true
	}
	return w.cluster.untilChange(ctx, w.question, at)
}

// readWithin reads the fleet with the time limit of a request.
func readWithin(ctx context.Context, c *cluster, q statusQuestion) (*explain.Fleet, listed, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return readFleet(ctx, c, q)
}

// writeRows prints rows in a form that can be continued: a table, one JSON object in each line, or YAML documents.
func writeRows(out io.Writer, rows []explain.Row, output string, header bool, now time.Time) error {
	switch output {
	case outputJSON:
		encoder := json.NewEncoder(out)
		for i := range rows {
			if err := encoder.Encode(rows[i]); err != nil {
				return err
			}
		}
		return nil
	case outputYAML:
		for i := range rows {
			text, err := yaml.Marshal(rows[i])
			if err != nil {
				return fmt.Errorf("encoding a row: %w", err)
			}
			if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
				return err
			}
		}
		return nil
	}
	return explain.WriteRows(out, rows, output == outputWide, header, now)
}

// untilChange waits until a Pipeline or a Promotion changes after it was listed, or the context ends, and
// at least watchPace. A watch that ends counts as a change: the next read shows whether there was one.
func (c *cluster) untilChange(ctx context.Context, q statusQuestion, at listed) error {
	pace := time.NewTimer(watchPace)
	defer pace.Stop()
	from := func(list client.ObjectList, resource, version string) (watch.Interface, error) {
		w, err := c.Watch(ctx, list, client.InNamespace(q.namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
		if err != nil && ctx.Err() == nil {
			return nil, c.failed(err, access{doing: "watching " + resource, verb: "watch", resource: resource, namespace: q.namespace, role: viewerRole})
		}
		return w, nil
	}
	pipelines, err := from(&pipelinesv1.PipelineList{}, "pipelines.pipelines.weave.works", at.pipelines)
	if err != nil || pipelines == nil {
		return err
	}
	defer pipelines.Stop()
	promotions, err := from(&capstanv1.PromotionList{}, "promotions.capstan.dev", at.promotions)
	if err != nil || promotions == nil {
		return err
	}
	defer promotions.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-pipelines.ResultChan():
	case <-promotions.ResultChan():
	}
	select {
	case <-ctx.Done():
	case <-pace.C:
	}
	return nil
}
