package fleet

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"
)

// The playground never calls anybody's account, and leaves the environment as it was.
func TestTheEnvironmentIsReplacedAndRestored(t *testing.T) {
	g := NewWithT(t)
	const prefix = "CAPSTAN_PLAYGROUND_"
	t.Setenv(prefix+"PROFILE", "somebody")
	t.Setenv(prefix+"REGION", "eu-north-1")
	restore, err := replaceEnvironment(prefix, map[string]string{prefix + "REGION": "eu-west-1", prefix + "URL": "http://here"})
	g.Expect(err).NotTo(HaveOccurred())
	_, found := os.LookupEnv(prefix + "PROFILE")
	g.Expect(found).To(BeFalse())
	g.Expect(os.Getenv(prefix + "REGION")).To(Equal("eu-west-1"))
	g.Expect(os.Getenv(prefix + "URL")).To(Equal("http://here"))

	g.Expect(restore()).To(Succeed())
	g.Expect(os.Getenv(prefix + "PROFILE")).To(Equal("somebody"))
	g.Expect(os.Getenv(prefix + "REGION")).To(Equal("eu-north-1"))
	_, found = os.LookupEnv(prefix + "URL")
	g.Expect(found).To(BeFalse())
}
