package hypervisor

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Size is the size of a domain.
type Size struct {
	// CPUs is the number of virtual CPUs.
	CPUs int32
	// MemoryBytes is the memory in bytes, rounded up to KiB.
	MemoryBytes int64
}

// piece is the position of an element in a domain's XML, and its beginning.
type piece struct {
	from, to int64
	start    xml.StartElement
}

// ResizeDomainXML changes the size in a domain's XML. Everything else stays byte for byte, because libvirt's additions,
// such as the version of the machine type and the addresses of devices, are the guest's hardware.
//
// Domains with individual states of virtual CPUs, which aren't this provider's, are refused.
func ResizeDomainXML(text string, size Size) (string, error) {
	if size.CPUs < 1 || size.MemoryBytes < 1 {
		return "", fmt.Errorf("a domain can't have %d CPUs and %d bytes of memory", size.CPUs, size.MemoryBytes)
	}
	domain, err := ReadDomainXML(text)
	if err != nil {
		return "", err
	}
	if len(domain.PinnedCPUs) > 0 && domain.CPUs != size.CPUs {
		return "", errors.New("changing a domain's XML: its virtual CPUs are pinned to CPUs of the host: their number can't be changed")
	}
	elements, err := pieces(text, "vcpu", "vcpus", "memory", "currentMemory")
	if err != nil {
		return "", fmt.Errorf("reading a domain's XML: %w", err)
	}
	if _, has := elements["vcpus"]; has {
		return "", errors.New("changing a domain's XML: the element vcpus has individual states of virtual CPUs")
	}
	kibibytes := fmt.Sprint((size.MemoryBytes + 1023) / 1024)
	var replaced []piece
	contents := map[int64]string{}
	for name, content := range map[string]string{"vcpu": fmt.Sprint(size.CPUs), "memory": kibibytes, "currentMemory": kibibytes} {
		at, has := elements[name]
		if !has && name != "currentMemory" {
			return "", fmt.Errorf("changing a domain's XML: it has no %s", name)
		}
		if has {
			replaced = append(replaced, at)
			contents[at.from] = content
		}
	}
	slices.SortFunc(replaced, func(a, b piece) int { return int(a.from - b.from) })
	var out strings.Builder
	var after int64
	for _, at := range replaced {
		out.WriteString(text[after:at.from])
		writeElement(&out, at.start, contents[at.from])
		after = at.to
	}
	out.WriteString(text[after:])
	return out.String(), nil
}

// pieces returns elements directly below the domain by their names.
func pieces(text string, names ...string) (map[string]piece, error) {
	elements := map[string]piece{}
	decoder := xml.NewDecoder(strings.NewReader(text))
	var path []string
	for {
		from := decoder.InputOffset()
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return elements, nil
		}
		if err != nil {
			return nil, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			path = append(path, token.Name.Local)
			if len(path) == 1 && path[0] != "domain" {
				return nil, fmt.Errorf("expected element type <domain> but have <%s>", path[0])
			}
			if len(path) == 2 && token.Name.Space == "" && slices.Contains(names, path[1]) {
				if _, twice := elements[path[1]]; twice {
					return nil, fmt.Errorf("it has %s twice", path[1])
				}
				elements[path[1]] = piece{from: from, start: token.Copy()}
			}
		case xml.EndElement:
			if at, ok := elements[token.Name.Local]; ok && len(path) == 2 && token.Name.Space == "" {
				at.to = decoder.InputOffset()
				elements[token.Name.Local] = at
			}
			path = path[:len(path)-1]
		}
	}
}

// writeElement writes an element with other content, without attributes about the old content.
func writeElement(out *strings.Builder, start xml.StartElement, content string) {
	name := start.Name.Local
	out.WriteString("<" + name)
	for _, attribute := range start.Attr {
		if attribute.Name.Local == "current" || attribute.Name.Local == "unit" {
			continue
		}
		out.WriteString(" " + attribute.Name.Local + `="`)
		_ = xml.EscapeText(out, []byte(attribute.Value)) // a Builder returns no error
		out.WriteString(`"`)
	}
	if name != "vcpu" {
		out.WriteString(` unit="KiB"`)
	}
	out.WriteString(">" + content + "</" + name + ">")
}
