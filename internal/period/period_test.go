package period

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestParse(t *testing.T) {
	g := NewWithT(t)
	d, err := Parse("1h30m", time.Minute, 2*time.Hour)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d).To(Equal(90 * time.Minute))
	for text, wrong := range map[string]string{
		"soon":   `"soon" is not a duration, such as 2h or 90m`,
		"":       `"" is not a duration, such as 2h or 90m`,
		"30s":    "30s is not from 1m to 2h, in whole seconds",
		"3h":     "3h is not from 1m to 2h, in whole seconds",
		"90.5s":  "90.5s is not from 1m to 2h, in whole seconds",
		"-90m":   "-90m is not from 1m to 2h, in whole seconds",
		"1h  5m": `"1h  5m" is not a duration, such as 2h or 90m`,
	} {
		_, err := Parse(text, time.Minute, 2*time.Hour)
		g.Expect(err).To(MatchError(wrong))
	}
}

func TestText(t *testing.T) {
	for text, d := range map[string]time.Duration{
		"0s": 0, "1s": 1500 * time.Millisecond, "1m30s": 90 * time.Second, "20m": 20 * time.Minute, "2h": 2 * time.Hour, "1h10m": 70 * time.Minute, "744h": 744 * time.Hour,
		"1h0m1s": time.Hour + time.Second,
	} {
		NewWithT(t).Expect(Text(d)).To(Equal(text))
	}
}
