// Package docs compares the documents with the program.
//
// Every flag, metric, condition reason and Event reason has an entry, and every entry
// describes something that exists. Alerts and the Grafana dashboard query metrics that
// exist, with labels that they have. Links have a target. Decisions have one form. Words
// that readers misread are in no document and in no string of the program. Documents that
// can be generated from the program are generated: docs/api.md from the CRDs,
// docs/metrics.md from the metrics (`make generate`). Two hubs in one
// process have their metrics in their own registries, and no package registers on import.
package docs
