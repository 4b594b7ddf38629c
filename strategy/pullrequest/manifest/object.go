package manifest

import "go.yaml.in/yaml/v3"

// object describes the Kubernetes object of a document.
func object(document *yaml.Node) string {
	root := document
	if len(document.Content) > 0 {
		root = document.Content[0]
	}
	metadata := field(root, "metadata")
	kind, name, namespace := field(root, "kind"), field(metadata, "name"), field(metadata, "namespace")
	switch {
	case kind == nil || name == nil || kind.Value == "" || name.Value == "":
		return ""
	case namespace == nil || namespace.Value == "":
		return kind.Value + " " + name.Value
	default:
		return kind.Value + " " + namespace.Value + "/" + name.Value
	}
}

// field returns the value of a key of a mapping, nil when there is none.
func field(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
