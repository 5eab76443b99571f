package hypervisor

import "encoding/xml"

// IgnitionEntries are the entries of the firmware configuration device with the Ignition configuration: Ignition's own
// (https://coreos.github.io/ignition/supported-platforms/) and Flatcar's.
var IgnitionEntries = []string{"opt/com.coreos/config", "opt/org.flatcar-linux/config"}

// RemoveIgnitionXML removes the Ignition configuration, if any, from a domain's XML. Everything else stays byte for
// byte: see ResizeDomainXML.
func RemoveIgnitionXML(text string) (string, error) {
	for _, name := range IgnitionEntries {
		var err error
		if text, err = removeEntryXML(text, name); err != nil {
			return "", err
		}
	}
	return text, nil
}

// removeEntryXML removes an entry of the firmware configuration device, and the device without entries.
func removeEntryXML(text, name string) (string, error) {
	var entry, cut piece // the entry in the current sysinfo element, and the removed part
	entries := 0
	err := visitElements(text, func(path string, at piece) error {
		switch path {
		case "domain/sysinfo/entry":
			entries++
			if hasName(at.start, name) {
				entry = at
			}
		case "domain/sysinfo":
			switch {
			case entry.to > 0 && entries == 1:
				cut = at
			case entry.to > 0:
				cut = entry
			}
			entry, entries = piece{}, 0
		}
		return nil
	})
	return text[:cut.from] + text[cut.to:], err
}

func hasName(element xml.StartElement, name string) bool {
	for _, attribute := range element.Attr {
		if attribute.Name.Local == "name" {
			return attribute.Value == name
		}
	}
	return false
}
