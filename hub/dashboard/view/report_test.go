package view

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// The answer in docs/api-http.md is that of a ledger in which one of two deployments was rolled back.
func TestDocumentedReport(t *testing.T) {
	g := NewWithT(t)
	f := deliveries()
	f.Promotions[2].Status.Approval = &capstanv1.ApprovalRecord{By: "ada", ApprovalTime: *ago(125 * time.Minute)}
	r, found := DeliveryReportOf(f, Everything(), DeliveryOf{Namespace: "apps", Pipeline: "shop"})
	g.Expect(found).To(BeTrue())
	g.Expect(r.DeploymentsPerDay).To(HaveLen(30))
	r.DeploymentsPerDay = r.DeploymentsPerDay[28:] // The document has the last two days.
	got, err := json.MarshalIndent(r, "", "  ")
	g.Expect(err).NotTo(HaveOccurred())
	raw, err := os.ReadFile("../../../docs/api-http.md")
	g.Expect(err).NotTo(HaveOccurred())
	documented := regexp.MustCompile("(?s)```json\n(.*?)\n```").FindSubmatch(raw)
	g.Expect(documented).NotTo(BeNil())
	g.Expect(string(documented[1])).To(Equal(string(got)))
}

// A report of all has the figures of each namespace and Pipeline, and their counts add up.
func TestDeliveryReport(t *testing.T) {
	g := NewWithT(t)
	f := deliveries()
	r, found := DeliveryReportOf(f, Everything(), DeliveryOf{})
	g.Expect(found).To(BeTrue())
	sum, perDay := 0, 0
	for _, n := range r.Namespaces {
		sum += n.Figures.Deployments
	}
	for _, p := range r.Pipelines {
		sum += p.Figures.Deployments
	}
	for _, d := range r.DeploymentsPerDay {
		perDay += d.Deployments
	}
	g.Expect([]int{r.Figures.Deployments, perDay, sum}).To(Equal([]int{3, 3, 6}))
	g.Expect(r.Environments).To(BeEmpty())
	for _, of := range []DeliveryOf{{Namespace: "absent"}, {Namespace: "apps", Pipeline: "billing"}} {
		_, found := DeliveryReportOf(f, Everything(), of)
		g.Expect(found).To(BeFalse())
	}
	_, found = DeliveryReportOf(f, Scope{Promotions: only("apps")}, DeliveryOf{Namespace: "other"})
	g.Expect(found).To(BeFalse())
}
