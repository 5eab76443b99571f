package metadata_test

// addCases are texts in which Add has to insert the lines that begin with "+": a text is the old file without these
// lines, and the new file with them.
var addCases = map[string]struct {
	version, contract, text string
}{
	"newest first": {"v1.3.0", "v1beta2", `
releaseSeries:
+- major: 1
+  minor: 3
+  contract: v1beta2
- major: 1
  minor: 2
  contract: v1beta1
- major: 1
  minor: 1
  contract: v1beta1
`},
	"oldest first, indented": {"v0.3.0", "v1beta2", `
releaseSeries:
  - major: 0
    minor: 1
    contract: v1beta1
  - major: 0
    minor: 2
    contract: v1beta1
+  - major: 0
+    minor: 3
+    contract: v1beta2
`},
	"a single series": {"v0.2.0", "v1beta2", `
releaseSeries:
+- major: 0
+  minor: 2
+  contract: v1beta2
- major: 0
  minor: 1
  contract: v1beta1
`},
	"an older one than a single series": {"v0.1.0", "v1beta1", `
releaseSeries:
- major: 0
  minor: 2
  contract: v1beta2
+- major: 0
+  minor: 1
+  contract: v1beta1
`},
	"in the middle": {"v0.10.0", "v1beta1", `
releaseSeries:
- major: 0
  minor: 9
  contract: v1beta1
+- major: 0
+  minor: 10
+  contract: v1beta1
- major: 0
  minor: 11
  contract: v1beta2
`},
	"one misplaced": {"v1.4.0", "v1beta2", `
releaseSeries:
+- {major: 1, minor: 4, contract: v1beta2}
- {major: 1, minor: 3, contract: v1beta1}
- {major: 1, minor: 1, contract: v1beta1}
- {major: 1, minor: 2, contract: v1beta1}
- {major: 1, minor: 0, contract: v1beta1}
`},
	"no order": {"v1.4.0", "v1beta2", `
releaseSeries:
- {major: 1, minor: 1, contract: v1beta1}
- {major: 1, minor: 3, contract: v1beta1}
- {major: 1, minor: 2, contract: v1beta1}
+- {major: 1, minor: 4, contract: v1beta2}
`},
	"comments belong to the series below or above": {"v0.3.0", "v1beta2", `
# how series work

releaseSeries: # the list
  # the first of all
  - major: 0 # zero
    minor: 1
    contract: v1beta1
    # never finished
  # the second
  - # with a dash of its own
    major: 0
    minor: 2 # two
    contract: v1beta1 # old
    # about 0.2
+  -
+    major: 0
+    minor: 3
+    contract: v1beta2
  # the end

# more
`},
	"comment above the first": {"v0.3.0", "v1beta2", `
releaseSeries:
# newest first

+- major: 0
+  minor: 3
+  contract: v1beta2
# the new API
- major: 0
  minor: 2
  contract: v1beta1
# the old API
- major: 0
  minor: 1
  contract: v1beta1
`},
	"comments in the middle": {"v0.2.0", "v1beta1", `
releaseSeries:
- major: 0
  minor: 3
# odd place
  contract: v1beta1
  # about 0.3
+- major: 0
+  minor: 2
+  contract: v1beta1
# about 0.1
- major: 0
  minor: 1
  contract: v1beta1
`},
	"keys after the list": {"v0.3.0", "v1beta2", `
releaseSeries:
- major: 0
  minor: 1
  contract: v1beta1
- major: 0
  minor: 2
  contract: v1beta1
+- major: 0
+  minor: 3
+  contract: v1beta2
metadata:
  name: x
`},
	"blank lines between": {"v0.3.0", "v1beta2", `
releaseSeries:

+- major: 0
+  minor: 3
+  contract: v1beta2
+
- major: 0
  minor: 2
  contract: v1beta1

- major: 0
  minor: 1
  contract: v1beta1

`},
	"blank lines between, at the end": {"v0.3.0", "v1beta2", `
releaseSeries:
- major: 0
  minor: 1
  contract: v1beta1

# second
- major: 0
  minor: 2
  contract: v1beta1
+
+- major: 0
+  minor: 3
+  contract: v1beta2
`},
	"quotes, order of fields and spaces": {"v0.3.0", "v1beta2", `
releaseSeries:
-   contract:  "v1beta1"
    "major": 0
    minor:   1
-   contract: 'v1beta1'
    "major": 0
    minor:   2
+-   contract: 'v1beta2'
+    "major": 0
+    minor:   3
`},
	"anchors are not copied": {"v0.3.0", "v1beta2", `
releaseSeries:
- major: 0
  minor: 1
  contract: &old v1beta1
- major: 0
  minor: 2
  contract: *old
+- major: 0
+  minor: 3
+  contract: v1beta2
`},
	"a series without a major": {"v1.0.0", "v1beta2", `
releaseSeries:
+  - major: 1
+    minor: 0
+    contract: v1beta2
  - minor: 2
    contract: v1beta1
`},
	"document markers": {"v0.3.0", "v1beta2", `
releaseSeries:
- major: 0
  minor: 1
  contract: v1beta1
- major: 0
  minor: 2
  contract: v1beta1
+- major: 0
+  minor: 3
+  contract: v1beta2
...
`},
	"braces in lines": {"v0.3.0", "v1beta2", `
releaseSeries:
  - { major: 0, minor: 1, contract: "v1beta1" } # old
  - { major: 0, minor: 2, contract: "v1beta1" } # {}
+  - { major: 0, minor: 3, contract: "v1beta2" }
`},
	"brackets over lines": {"v0.1.0", "v1beta1", `
releaseSeries: [
  {major: 0, minor: 3, contract: v1beta1},
  {major: 0, minor: 2, contract: v1beta1},
+  {major: 0, minor: 1, contract: v1beta1},
  {major: 0, minor: 0, contract: v1beta1}
]
`},
	"a folded contract": {"v0.3.0", "v1beta2", `
releaseSeries:
- major: 0
  minor: 1
  contract: v1beta1
- major: 0
  minor: 2
  contract: >-
    v1beta1
+- major: 0
+  minor: 3
+  contract: v1beta2
`},
	"tabs": {"v0.3.0", "v1beta2", `
releaseSeries:
- major:	0	# zero
  minor:	1
  contract:	v1beta1
- major:	0
  minor:	2	
  contract:	v1beta1	
+- major:	0
+  minor:	3
+  contract:	v1beta2
`},
}
