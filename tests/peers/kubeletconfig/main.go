// What a kubelet makes of a KubeletConfiguration: its own decoder, defaults, validation, reservations and the start of
// its CPU, memory and topology managers on a machine that the question describes.
//
// One JSON object a line in, one out. tests/peers/decoders.py builds it over the modules of each release and writes
// cut.go: those functions of the kubelet's main package and container manager that no other package can call, as the
// release's source has them. What is written here is the order of the calls in `run` of cmd/kubelet/app/server.go and
// in NewContainerManager and Start of pkg/kubelet/cm/container_manager_linux.go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	_ "unsafe" // needed by go:linkname

	_ "github.com/opencontainers/cgroups"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	_ "k8s.io/kubernetes/pkg/features" // registers the kubelet's gates
	"sigs.k8s.io/yaml"
)

// question is a file, the machine that it is tried on, and the gates whose state is wanted.
type question struct {
	ID      string   `json:"id"`
	Text    string   `json:"text"`
	Machine machine  `json:"machine"`
	Gates   []string `json:"gates"`
}

// answer tells whether the kubelet starts; where it does not, the step that failed and its error.
type answer struct {
	ID        string     `json:"id"`
	Accepted  bool       `json:"accepted"`
	Stage     string     `json:"stage,omitempty"`
	Error     string     `json:"error,omitempty"`
	Effective *effective `json:"effective,omitempty"`
}

// The cgroup version of the machine that this program runs on must not matter: the kubelet is told version 2.
//
//go:linkname isUnifiedOnce github.com/opencontainers/cgroups.isUnifiedOnce
var isUnifiedOnce sync.Once

//go:linkname isUnified github.com/opencontainers/cgroups.isUnified
var isUnified bool

// pristine are the gates as the kubelet has them before it reads a file.
var pristine = utilfeature.DefaultMutableFeatureGate.DeepCopy()

var quiet = klog.NewContext(context.Background(), klog.Logger{})

func main() {
	klog.SetLoggerWithOptions(klog.Logger{}, klog.ContextualLogger(true))
	isUnifiedOnce.Do(func() {})
	isUnified = true
	out := json.NewEncoder(os.Stdout)
	if len(os.Args) > 1 && os.Args[1] == "gates" {
		must(out.Encode(knownGates()))
		return
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var asked question
		must(json.Unmarshal(in.Bytes(), &asked))
		must(out.Encode(asked.answer()))
	}
	must(in.Err())
}

// answer lets the kubelet see only gates that it knows, with values that it lets them have.
func (q question) answer() answer {
	if why := barredGates(q.Text); why != "" {
		return answer{ID: q.ID, Stage: "not asked", Error: why}
	}
	folder, err := os.MkdirTemp("", "kubeletconfig-")
	must(err)
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "config.yaml")
	must(os.WriteFile(file, []byte(q.Text), 0o600))
	gates := pristine.DeepCopy()
	utilfeature.DefaultMutableFeatureGate, utilfeature.DefaultFeatureGate = gates, gates
	found, stage, err := start(file, folder, q)
	if err != nil {
		return answer{ID: q.ID, Stage: stage, Error: strings.ReplaceAll(err.Error(), folder, "")}
	}
	return answer{ID: q.ID, Accepted: true, Effective: found}
}

// barredGates is why a file must not be asked, or "".
func barredGates(text string) string {
	var document map[string]json.RawMessage
	if yaml.Unmarshal([]byte(text), &document) != nil {
		return "" // the kubelet's decoder refuses it before it looks at gates
	}
	var gates map[string]bool
	if json.Unmarshal(document["featureGates"], &gates) != nil {
		return ""
	}
	if err := pristine.DeepCopy().SetFromMap(gates); err != nil {
		return err.Error()
	}
	return ""
}

// knownGates is every gate: whether it is on by default, whether it is locked, and its stage.
func knownGates() map[string]any {
	found := map[string]any{}
	for name, spec := range pristine.GetAll() {
		found[string(name)] = map[string]any{
			"default": spec.Default, "locked": spec.LockToDefault, "stage": string(spec.PreRelease),
		}
	}
	return found
}

func enabled(names []string) map[string]bool {
	found := map[string]bool{}
	for _, name := range names {
		if _, known := pristine.GetAll()[featuregate.Feature(name)]; known {
			found[name] = utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(name))
		}
	}
	return found
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubeletconfig:", err)
		os.Exit(1)
	}
}
