package promotions

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation"
)

// For any name of an environment, its Promotions have names and labels that Kubernetes
// accepts, and that no other environment has.
func TestPromotionNames(t *testing.T) {
	g := NewWithT(t)
	seen := map[string]string{}
	for _, env := range []string{
		"prod", "Prod", "prod-eu", "Prod EU", "prod/eu", "prod eu ", "--", "", "日本", strings.Repeat("x", 200), strings.Repeat("x", 201), strings.Repeat("-a", 60),
	} {
		for _, pipeline := range []string{"web", strings.Repeat("long.name-", 25)} {
			name := Name(pipeline, "uid", env, 1)
			g.Expect(validation.IsDNS1123Subdomain(name)).To(BeEmpty(), name)
			g.Expect(validation.IsValidLabelValue(Slug(env, MaxLabel))).To(BeEmpty(), env)
			if other, taken := seen[name]; taken {
				t.Errorf("%q and %q both give %s", other, env, name)
			}
			seen[name] = env
		}
	}
	g.Expect(Name("web", "uid", "prod", 2)).NotTo(Equal(Name("web", "other", "prod", 2)), "a re-created Pipeline has slots of its own")
	g.Expect(Name("web", "uid", "Prod EU", 7)).To(HavePrefix("web-prod-eu-"))
	g.Expect(Name("web", "uid", "Prod EU", 7)).To(HaveSuffix("-7"))
}

func FuzzSlug(f *testing.F) {
	f.Add("Prod EU", 63)
	f.Fuzz(func(t *testing.T, name string, length int) {
		if length < 1 || length > 63 {
			t.Skip() // The lengths are constants of this package.
		}
		s := Slug(name, length)
		if len(s) > length || len(validation.IsDNS1123Label(s)) > 0 {
			t.Errorf("Slug(%q, %d) = %q", name, length, s)
		}
	})
}
