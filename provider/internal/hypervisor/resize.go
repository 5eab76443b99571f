package hypervisor

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
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
	kibibytes := fmt.Sprint((size.MemoryBytes + 1023) / 1024)
	contents := map[string]string{"domain/vcpu": fmt.Sprint(size.CPUs), "domain/memory": kibibytes, "domain/currentMemory": kibibytes}
	replaced := map[string]bool{}
	var out strings.Builder
	var after int64
	err = visitElements(text, func(path string, at piece) error {
		content, replaces := contents[path]
		switch {
		case path == "domain/vcpus":
			return errors.New("changing a domain's XML: the element vcpus has individual states of virtual CPUs")
		case !replaces:
			return nil
		case replaced[path]:
			return fmt.Errorf("reading a domain's XML: it has %s twice", at.start.Name.Local)
		}
		replaced[path] = true
		out.WriteString(text[after:at.from])
		writeElement(&out, at.start, content)
		after = at.to
		return nil
	})
	if err != nil {
		return "", err
	}
	for _, name := range []string{"vcpu", "memory"} {
		if !replaced["domain/"+name] {
			return "", fmt.Errorf("changing a domain's XML: it has no %s", name)
		}
	}
	out.WriteString(text[after:])
	return out.String(), nil
}

// visitElements calls visit at the end of each element of a domain's XML, with its path, such as domain/vcpu. Elements
// in a namespace have it in their paths.
func visitElements(text string, visit func(path string, at piece) error) error {
	decoder := xml.NewDecoder(strings.NewReader(text))
	var open []piece
	var names []string
	for {
		from := decoder.InputOffset()
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a domain's XML: %w", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			open = append(open, piece{from: from, start: token.Copy()})
			names = append(names, token.Name.Space+token.Name.Local)
		case xml.EndElement:
			last := len(open) - 1
			open[last].to = decoder.InputOffset()
			if err := visit(strings.Join(names, "/"), open[last]); err != nil {
				return err
			}
			open, names = open[:last], names[:last]
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
