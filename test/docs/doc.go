// Package docs holds what is written for people against the program: every flag,
// metric, condition reason and Event reason has an entry and every entry something that
// it is about; alerts and the dashboard ask for metrics that there are, with labels that
// those have; links lead somewhere. Documents that can be made of the program are:
// docs/api.md of the CRDs, docs/metrics.md of the metrics (`make generate`). Two hubs in one
// process have their metrics in their own registries, and no package registers on import.
package docs
