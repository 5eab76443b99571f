package hypervisor

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// IgnitionEntry is the name of the entry of the firmware configuration device that has an Ignition configuration
// (https://coreos.github.io/ignition/supported-platforms/).
const IgnitionEntry = "opt/com.coreos/config"

// RemoveIgnitionXML takes the Ignition configuration from a domain in libvirt's format, and leaves everything else as
// it is, byte for byte: see ResizeDomainXML. A domain without one stays as it is.
func RemoveIgnitionXML(text string) (string, error) {
	decoder := xml.NewDecoder(strings.NewReader(text))
	var path []string
	var system, entry, cut piece // the sysinfo element that is being read, our entry in it, and what goes
	entries := 0
	for {
		from := decoder.InputOffset()
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return text[:cut.from] + text[cut.to:], nil
		}
		if err != nil {
			return "", fmt.Errorf("reading a domain's XML: %w", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			path = append(path, token.Name.Local)
			switch strings.Join(path, "/") {
			case "domain/sysinfo":
				system, entry, entries = piece{from: from}, piece{}, 0
			case "domain/sysinfo/entry":
				entries++
				if hasName(token, IgnitionEntry) {
					entry = piece{from: from, start: token.Copy()}
				}
			}
		case xml.EndElement:
			at := strings.Join(path, "/")
			path = path[:len(path)-1]
			switch {
			case at == "domain/sysinfo/entry" && entry.start.Name.Local != "" && entry.to == 0:
				entry.to = decoder.InputOffset()
			case at == "domain/sysinfo" && entry.to > 0 && entries == 1:
				cut = piece{from: system.from, to: decoder.InputOffset()}
			case at == "domain/sysinfo" && entry.to > 0:
				cut = entry
			}
		}
	}
}

func hasName(element xml.StartElement, name string) bool {
	for _, attribute := range element.Attr {
		if attribute.Name.Local == "name" {
			return attribute.Value == name
		}
	}
	return false
}
