package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"golang.org/x/mod/modfile"
)

// bill returns the bill of materials of a binary, in CycloneDX 1.6 JSON: the modules that the
// linker recorded, and Go's standard library. The linker records no graph, so there is none.
func (r *release) bill(program, binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	sum, err := sha256Of(binary)
	if err != nil {
		return nil, err
	}
	components := []cdx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, module := range info.Deps {
		components = append(components, r.component(module))
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })

	bom := cdx.NewBOM()
	purl := "pkg:golang/" + info.Main.Path + "@" + r.version + "#cmd/" + program
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.source.time.Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: purl, PackageURL: purl, Type: cdx.ComponentTypeApplication, Name: program, Version: r.version,
			Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
			Licenses: &cdx.Licenses{{License: &cdx.License{ID: license}}},
		},
	}
	bom.Components = &components
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// component describes a module. One that a directory of the repository replaces (api) has the
// version of the release.
func (r *release) component(module *debug.Module) cdx.Component {
	if module.Replace == nil {
		return library(module.Path, module.Version)
	}
	if modfile.IsDirectoryPath(module.Replace.Path) {
		return library(module.Path, r.version)
	}
	return library(module.Replace.Path, module.Replace.Version)
}

func library(path, version string) cdx.Component {
	purl := "pkg:golang/" + path + "@" + version
	return cdx.Component{BOMRef: purl, PackageURL: purl, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, Scope: cdx.ScopeRequired}
}
