package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// hugepagesSetting has the number of huge pages of 2 MiB that the kernel reserves, for all hosts of all testbeds.
const hugepagesSetting = "/proc/sys/vm/nr_hugepages"

// hugepagesFile, in the folder of a run, has the number of pages that the run has added.
const hugepagesFile = "hugepages"

// PrepareHugepages reserves huge pages of 2 MiB for guests, in addition to the existing ones. It is for sandbox.Main,
// after Prepare. ReturnHugepages releases them, and the next run releases those of a killed one.
func PrepareHugepages(pages int) error {
	if runFolder == "" {
		return errors.New("reserving huge pages: call Prepare first")
	}
	before, err := changeHugepages(pages)
	if err != nil {
		return err
	}
	file := filepath.Join(runFolder, hugepagesFile)
	if err := os.WriteFile(file, []byte(strconv.Itoa(pages)), 0o600); err != nil {
		_, back := changeHugepages(-pages)
		return errors.Join(err, back, os.RemoveAll(file)) // without the file no run would release them
	}
	now, err := readHugepages(hugepagesSetting)
	if err != nil {
		return err
	}
	if now < before+pages {
		return errors.Join(fmt.Errorf("the kernel has reserved %d huge pages of 2 MiB and not %d: the free memory is too fragmented; "+
			"end programs that use memory, or set vm.nr_hugepages to %d when the machine starts", now, before+pages, pages), ReturnHugepages())
	}
	return nil
}

// ReturnHugepages releases the pages that PrepareHugepages has reserved in this process.
func ReturnHugepages() error {
	if runFolder == "" {
		return nil
	}
	return returnHugepages(runFolder)
}

// returnHugepages releases the pages that the run of a folder has reserved.
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

// changeHugepages adds to the reserved pages, and returns their number before.
func changeHugepages(pages int) (before int, err error) {
	before, err = readHugepages(hugepagesSetting)
	if err == nil {
		err = os.WriteFile(hugepagesSetting, []byte(strconv.Itoa(max(0, before+pages))), 0)
	}
	if err != nil {
		return before, fmt.Errorf("reserving huge pages for guests: %w "+
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
