package manifest

import (
	"bytes"
	"strings"
	"testing"
)

func BenchmarkMentions(b *testing.B) {
	// 1,000 manifests of 5 KiB, one in ten marked for another environment, one for ours.
	const files = 1000
	var tree [][]byte
	for i := range files {
		content := strings.Repeat("# a comment, and a key below it\nname: podinfo\n", 5*1024/46)
		switch {
		case i == files-1:
			content += string(marked("version: 6.0.0 $M\n"))
		case i%10 == 0:
			content += string(marked("version: 6.0.0 $S\n"))
		}
		tree = append(tree, []byte(content))
	}
	b.SetBytes(int64(len(bytes.Join(tree, nil))))
	b.ReportAllocs()
	for b.Loop() {
		found := 0
		for _, content := range tree {
			if Mentions(content, prod) {
				found++
			}
		}
		if found != 1 {
			b.Fatal(found)
		}
	}
}

func BenchmarkEdit(b *testing.B) {
	// 200 lines: a HelmRelease with long values, the marker in its middle.
	values := strings.Repeat("    - name: VARIABLE # what it is for\n      value: \"some text\"\n", 47)
	content := marked("apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata:\n  name: podinfo\n  namespace: apps\nspec:\n  values:\n    a:\n" +
		values + "  chart:\n    spec:\n      chart: podinfo\n      version: 6.0.0 $M\n  more:\n    b:\n" + values)
	if lines := bytes.Count(content, []byte("\n")); lines < 200 {
		b.Fatal(lines)
	}
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Edit(content, prod, newVersion); err != nil {
			b.Fatal(err)
		}
	}
}
