package hub

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// The files of the OpenID Connect provider are read at the start. An error names the flag.
func TestFilesOfTheProvider(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
		return path
	}
	none, err := Dashboard{URL: "https://capstan.example.org"}.options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(none).To(BeNil())

	d := Dashboard{URL: "https://capstan.example.org", OIDC: DashboardOIDC{IssuerURL: "https://id.example.org", ClientID: "capstan", ClientSecretFile: file("secret", "s3cret\n")}}
	o, err := d.options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.ClientSecret).To(Equal("s3cret"))
	g.Expect(o.Roots).To(BeNil(), "those of the system")

	for says, edit := range map[string]func(*DashboardOIDC){
		"--dashboard-oidc-client-secret-file: reading the secret of the client: open " + folder + "/none": func(o *DashboardOIDC) { o.ClientSecretFile = folder + "/none" },
		"--dashboard-oidc-client-secret-file: " + folder + "/empty is empty: write":                       func(o *DashboardOIDC) { o.ClientSecretFile = file("empty", " \n") },
		"--dashboard-oidc-ca-file: reading the certificate authorities: open " + folder + "/none":         func(o *DashboardOIDC) { o.CAFile = folder + "/none" },
		"--dashboard-oidc-ca-file: " + folder + "/garbage has no certificate in PEM form":                 func(o *DashboardOIDC) { o.CAFile = file("garbage", "x") },
	} {
		wrong := d
		edit(&wrong.OIDC)
		_, err := wrong.options()
		g.Expect(err).To(MatchError(ContainSubstring(says)))
	}
}
