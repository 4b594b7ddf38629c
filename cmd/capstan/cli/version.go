package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set by the linker in a release:
// -X github.com/capstan-hub/capstan/cmd/capstan/cli.release=v1.2.3
var release string

// version returns the release of this build, or the commit when it is no release.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	setting := map[string]string{}
	for _, s := range info.Settings {
		setting[s.Key] = s.Value
	}
	v := "devel"
	if revision := setting["vcs.revision"]; revision != "" {
		const short = 12
		v += "-" + revision[:min(short, len(revision))]
	}
	if setting["vcs.modified"] == "true" {
		v += "-modified"
	}
	return v
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			_, _ = fmt.Fprintf(c.OutOrStdout(), "capstan %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}
