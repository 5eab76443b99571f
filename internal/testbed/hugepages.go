package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// hugepagesSetting is how many huge pages of 2 MiB the kernel has set aside, for all hosts of all testbeds.
const hugepagesSetting = "/proc/sys/vm/nr_hugepages"

// hugepagesFile, in the folder of a run, is how many of them the run has added.
const hugepagesFile = "hugepages"

// PrepareHugepages sets huge pages of 2 MiB aside for guests, in addition to those that the machine has. It is for sandbox.Main,
// after Prepare. They are given back by ReturnHugepages, and those of a run that was killed by the next run.
func PrepareHugepages(pages int) error {
	if runFolder == "" {
		return errors.New("setting huge pages aside: Prepare comes first")
	}
	before, err := changeHugepages(pages)
	if err != nil {
		return err
	}
	file := filepath.Join(runFolder, hugepagesFile)
	if err := os.WriteFile(file, []byte(strconv.Itoa(pages)), 0o600); err != nil {
		_, back := changeHugepages(-pages)
		return errors.Join(err, back, os.RemoveAll(file)) // nobody would give them back
	}
	now, err := readHugepages(hugepagesSetting)
	if err != nil {
		return err
	}
	if now < before+pages {
		return errors.Join(fmt.Errorf("the kernel has set %d huge pages of 2 MiB aside and not %d: it finds no more memory that is in one piece; "+
			"end programs that take memory, or set vm.nr_hugepages to %d when the machine starts", now, before+pages, pages), ReturnHugepages())
	}
	return nil
}

// ReturnHugepages gives back what PrepareHugepages has set aside in this process.
func ReturnHugepages() error {
	if runFolder == "" {
		return nil
	}
	return returnHugepages(runFolder)
}

// returnHugepages gives back what the run of a folder has set aside.
func returnHugepages(folder string) error {
	file := filepath.Join(folder, hugepagesFile)
	pages, err := readHugepages(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := changeHugepages(-pages); err != nil {
		return err
	}
	return os.Remove(file)
}

// changeHugepages adds to the pages that are set aside, and returns how many there were.
func changeHugepages(pages int) (before int, err error) {
	before, err = readHugepages(hugepagesSetting)
	if err == nil {
		err = os.WriteFile(hugepagesSetting, []byte(strconv.Itoa(max(0, before+pages))), 0)
	}
	if err != nil {
		return before, fmt.Errorf("setting huge pages aside, for guests that ask for them: %w "+
			"(it needs a kernel with huge pages, and the right to write %s; in a container: --privileged)", err, hugepagesSetting)
	}
	return before, nil
}

func readHugepages(file string) (int, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	pages, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", file, err)
	}
	return pages, nil
}
