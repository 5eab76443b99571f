package guest

import (
	"bytes"
	"fmt"
	"os"
)

// cpio is an archive in the format of an initramfs
// (https://docs.kernel.org/driver-api/early-userspace/buffer-format.html). All files belong to root and have no time,
// so that the same content gives the same archive.
type cpio struct {
	buffer bytes.Buffer
	inode  int
}

const (
	modeFolder = 0o040755
	modeFile   = 0o100000
)

func (c *cpio) entry(name string, mode int, content []byte) {
	c.inode++
	fmt.Fprintf(&c.buffer, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	c.buffer.WriteString(name)
	c.buffer.WriteByte(0)
	c.pad()
	c.buffer.Write(content)
	c.pad()
}

// pad pads to a multiple of 4 bytes.
func (c *cpio) pad() {
	for c.buffer.Len()%4 != 0 {
		c.buffer.WriteByte(0)
	}
}

func (c *cpio) folder(name string) {
	c.entry(name, modeFolder, nil)
}

func (c *cpio) bytes(name string, content []byte, permissions int) {
	c.entry(name, modeFile|permissions, content)
}

func (c *cpio) file(name, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	c.bytes(name, content, 0o755)
	return nil
}

func (c *cpio) end() []byte {
	c.entry("TRAILER!!!", 0, nil)
	return c.buffer.Bytes()
}
