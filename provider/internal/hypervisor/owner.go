package hypervisor

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// OwnerNamespace is the XML namespace of the owner in a domain's metadata.
const OwnerNamespace = "https://infrastructure.cluster.x-k8s.io/libvirt/owner/v1"

// Owner is the LibvirtMachine of a domain.
type Owner struct {
	// Cluster is the name of the Cluster.
	Cluster string
	// Namespace and Name are those of the LibvirtMachine.
	Namespace, Name string
}

type ownerElement struct {
	XMLName   xml.Name `xml:"https://infrastructure.cluster.x-k8s.io/libvirt/owner/v1 owner"`
	Cluster   string   `xml:"cluster,attr"`
	Namespace string   `xml:"namespace,attr"`
	Name      string   `xml:"name,attr"`
}

// Metadata writes the owner as an element for a domain's metadata, which libvirt keeps. Incomplete owners and invalid
// characters are errors.
func (o Owner) Metadata() (string, error) {
	// A prefix of our own: libvirt refuses metadata whose elements are in the default namespace.
	var out strings.Builder
	out.WriteString(`<caplv:owner xmlns:caplv="` + OwnerNamespace + `"`)
	for _, attribute := range [][2]string{{"cluster", o.Cluster}, {"namespace", o.Namespace}, {"name", o.Name}} {
		if attribute[1] == "" {
			return "", fmt.Errorf("the owner of a domain has no %s", attribute[0])
		}
		out.WriteString(" " + attribute[0] + `="`)
		if err := xml.EscapeText(&out, []byte(attribute[1])); err != nil {
			return "", fmt.Errorf("writing the owner of a domain: %w", err)
		}
		out.WriteString(`"`)
	}
	out.WriteString("/>")
	return out.String(), nil
}

// ReadOwner reads the owner from a domain's metadata, or nil if there is none. It ignores other elements.
func ReadOwner(metadata string) (*Owner, error) {
	decoder := xml.NewDecoder(strings.NewReader(metadata))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading a domain's metadata: %w", err)
		}
		start, isStart := token.(xml.StartElement)
		if !isStart {
			continue
		}
		if start.Name != (xml.Name{Space: OwnerNamespace, Local: "owner"}) {
			if err := decoder.Skip(); err != nil {
				return nil, fmt.Errorf("reading a domain's metadata: %w", err)
			}
			continue
		}
		var element ownerElement
		if err := decoder.DecodeElement(&element, &start); err != nil {
			return nil, fmt.Errorf("reading the owner of a domain: %w", err)
		}
		if element.Cluster == "" || element.Namespace == "" || element.Name == "" {
			return nil, errors.New("reading the owner of a domain: the element lacks a cluster, namespace or name")
		}
		return &Owner{Cluster: element.Cluster, Namespace: element.Namespace, Name: element.Name}, nil
	}
}
