// Reads what the kernel lets every container of a node use, many times a second, while things change.
//
//	sweep OUT [ROOT]
//
// A sweep reads the CPUs in force of every container's cgroup (v2 or v1; names of systemd or cgroupfs, of containerd or
// CRI-O) and the Cpus_allowed of every thread in it. It sweeps every 60 ms, and at once after somebody wrote a cpuset.
// OUT gets a JSON object per line: each sweep that differs from the one before, each new saved ledger, and one a second
// in any case. SIGTERM ends it. ROOT is where cgroups, bundles and the ledger are looked for, in place of /.
//
// Reading one cgroup after the other is no moment: what was read first may have changed before the last was read. A
// sweep that finds a change therefore reads everything again in reverse; what is the same both times was in force
// at once in between. Such a sweep says "whole".
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const (
	ledger = "/var/lib/numalign/checkpoint.json"
	pause  = 60 * time.Millisecond
	beat   = time.Second
)

// A version of cgroups: where the kubelet's are, and what tells CPUs in force and threads.
type version struct {
	tree, cpus, threads string
	stale               bool // the list of threads must be opened anew
}

var versions = []version{
	{"/sys/fs/cgroup/kubepods*", "/cpuset.cpus.effective", "/cgroup.threads", false},
	{"/sys/fs/cgroup/cpuset/kubepods*", "/cpuset.effective_cpus", "/tasks", true},
}

var (
	root  = ""
	scope = regexp.MustCompile(`pod([0-9a-f_-]{36})(?:\.slice)?/(?:cri-containerd-|crio-)?([0-9a-f]{64})(?:\.scope)?$`)
	above = regexp.MustCompile(`/(?:.*\.slice|besteffort|burstable|pod[0-9a-f-]{36})$`)
	// Where the runtimes write down what a container is, and what they call a pod's sandbox.
	bundles = []string{
		"/run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json",
		"/run/containers/storage/overlay-containers/%s/userdata/config.json",
	}
	pod = regexp.MustCompile(`"io\.kubernetes\.(?:cri\.container-type|cri-o\.ContainerType)":\s*"sandbox"`)
)

// A container as the judge reads it. Kind: app; pause, its pod's sandbox; init, while runc has not yet become its program.
type container struct {
	Pod    string            `json:"pod"`
	Cpus   string            `json:"cpus"`
	Kind   string            `json:"kind"`
	Strays map[string]string `json:"strays,omitempty"` // threads with CPUs that their cgroup has not
}

type line struct {
	Sweep   int                   `json:"sweep"`
	At      float64               `json:"at"`
	Whole   bool                  `json:"whole"`            // what it says was in force at one moment
	Still   bool                  `json:"still"`            // the saved ledger was the same before and after
	Longest float64               `json:"longest"`          // seconds between two sweeps since the line before
	Changed map[string]*container `json:"changed"`          // by id; null for one that is gone
	Ledger  *string               `json:"ledger,omitempty"` // the checkpoint in base64, when it is another one
}

// One container's open files: opened once, read again and again. But the list of threads of v1 is the one that was true
// when it was first read, for as long as somebody reads it each second (kernel/cgroup/cgroup-v1.c): stale.
type files struct {
	id, pod       string
	sandbox       bool
	cpus, threads *os.File
	stale         bool
	began         bool // its program runs: runc is through with it
}

type sweeper struct {
	known  map[string]*files // by path
	paths  []string          // of known, as listed last
	listed time.Time         // zero when a cgroup came or went: listing takes far longer than reading
	notify int               // inotify
	buffer []byte
}

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		log.Fatal("usage: sweep OUT [ROOT]")
	}
	out, err := os.Create(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	if len(os.Args) == 3 {
		root = os.Args[2]
	}
	notify, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		log.Fatal(err)
	}
	s := &sweeper{known: map[string]*files{}, notify: notify, buffer: make([]byte, 1<<16)}
	run(s, bufio.NewWriter(out), ended)
}

func run(s *sweeper, out *bufio.Writer, ended <-chan os.Signal) {
	began, before, identity := time.Now(), map[string]*container{}, ""
	last, told, longest := began, time.Time{}, 0.0
	for sweep := 0; ; sweep++ {
		over := len(ended) > 0
		start := time.Now()
		longest, last = max(longest, start.Sub(last).Seconds()), start
		id, data := saved(identity)
		now := s.sets(false)
		changed := differences(before, now)
		whole := true
		if len(changed) > 0 {
			again := s.sets(true)
			whole = len(differences(now, again)) == 0
			now = again
			changed = differences(before, now)
		}
		if len(changed) > 0 || data != nil || over || start.Sub(told) > beat {
			each := line{sweep, start.Sub(began).Seconds(), whole, stat() == id, longest, changed, nil}
			if data != nil {
				text := base64.StdEncoding.EncodeToString(data)
				each.Ledger = &text
			}
			text, err := json.Marshal(each)
			if err != nil {
				log.Fatal(err)
			}
			out.Write(append(text, '\n'))
			if err := out.Flush(); err != nil {
				log.Fatal(err)
			}
			told, longest = start, 0
		}
		if over {
			return
		}
		before, identity = now, id
		if len(changed) == 0 {
			s.wait()
		}
	}
}

// wait until somebody wrote a cpuset, or a while.
func (s *sweeper) wait() {
	until := time.Now().Add(pause)
	for {
		left := time.Until(until)
		if left <= 0 {
			return
		}
		var set syscall.FdSet
		set.Bits[s.notify/64] |= 1 << (uint(s.notify) % 64)
		limit := syscall.NsecToTimeval(left.Nanoseconds())
		if ready, err := syscall.Select(s.notify+1, &set, nil, nil, &limit); err != nil || ready == 0 {
			if err == syscall.EINTR {
				continue // Go's own signals
			}
			return
		}
		if s.heard() {
			return
		}
	}
}

// heard reads what inotify has to say: whether a cpuset was written, or a cgroup came.
func (s *sweeper) heard() bool {
	wrote := false
	for {
		read, err := syscall.Read(s.notify, s.buffer)
		if err != nil || read < syscall.SizeofInotifyEvent {
			return wrote
		}
		for rest := s.buffer[:read]; len(rest) >= syscall.SizeofInotifyEvent; {
			event := (*syscall.InotifyEvent)(unsafe.Pointer(&rest[0]))
			end := syscall.SizeofInotifyEvent + int(event.Len)
			if event.Mask&(syscall.IN_ISDIR|syscall.IN_Q_OVERFLOW) != 0 {
				s.listed, wrote = time.Time{}, true
			}
			if bytes.HasPrefix(rest[syscall.SizeofInotifyEvent:end], []byte("cpuset.cpus\x00")) {
				wrote = true
			}
			rest = rest[end:]
		}
	}
}

// sets of all containers with a process: an empty cgroup runs nowhere. In reverse, for the second look.
func (s *sweeper) sets(reverse bool) map[string]*container {
	s.heard()
	if time.Since(s.listed) > beat {
		s.listed = time.Now()
		s.list()
	}
	paths := s.paths
	if reverse {
		paths = slices.Clone(paths)
		slices.Reverse(paths)
	}
	found := map[string]*container{}
	for _, path := range paths {
		file := s.known[path]
		cpus, err := reread(file.cpus, s.buffer)
		text, gone := file.list(s.buffer[4096:])
		threads := strings.Fields(text)
		if err != nil || gone != nil || len(threads) == 0 {
			continue
		}
		kind := file.kind(threads)
		found[file.id] = &container{file.pod, cpus, kind, strays(cpus, threads)}
	}
	return found
}

// list the threads.
func (f *files) list(buffer []byte) (string, error) {
	if !f.stale {
		return reread(f.threads, buffer)
	}
	file, err := os.Open(f.threads.Name())
	if err != nil {
		return "", err
	}
	defer file.Close()
	return reread(file, buffer)
}

func (f *files) kind(threads []string) string {
	if f.sandbox {
		return "pause"
	}
	if !f.began {
		for _, thread := range threads {
			if runc(thread) {
				return "init"
			}
		}
		f.began = true
	}
	return "app"
}

// runc and what it becomes on its way into a container: "runc", "runc:[2:INIT]".
func runc(thread string) bool {
	name, _ := os.ReadFile("/proc/" + thread + "/comm")
	return bytes.HasPrefix(name, []byte("runc"))
}

// list finds all containers' cgroups; those that came are opened and watched, those that went are closed.
func (s *sweeper) list() {
	var found []string
	for _, each := range versions {
		tops, _ := filepath.Glob(root + each.tree)
		for _, top := range tops {
			s.visit(top, each, &found)
		}
	}
	for path, file := range s.known {
		if !slices.Contains(found, path) {
			file.cpus.Close()
			file.threads.Close()
			delete(s.known, path)
		}
	}
	s.paths = found
}

func (s *sweeper) visit(folder string, files version, found *[]string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	s.watched(folder)
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		path := filepath.Join(folder, entry.Name())
		if above.MatchString(path) {
			s.visit(path, files, found)
		} else if match := scope.FindStringSubmatch(path); match != nil && s.open(path, files, match) {
			*found = append(*found, path)
		}
	}
}

// watched has no need to know what is watched already: to ask again changes nothing.
func (s *sweeper) watched(folder string) {
	syscall.InotifyAddWatch(s.notify, folder, syscall.IN_MODIFY|syscall.IN_CREATE|syscall.IN_DELETE)
}

func (s *sweeper) open(path string, its version, match []string) bool {
	if s.known[path] != nil {
		return true
	}
	cpus, err := os.Open(path + its.cpus)
	if err != nil {
		return false
	}
	threads, err := os.Open(path + its.threads)
	if err != nil {
		cpus.Close()
		return false
	}
	sandbox := false
	for _, place := range bundles {
		text, _ := os.ReadFile(root + fmt.Sprintf(place, match[2]))
		sandbox = sandbox || pod.Match(text)
	}
	s.known[path] = &files{match[2], strings.ReplaceAll(match[1], "_", "-"), sandbox, cpus, threads, its.stale, false}
	s.watched(path)
	return true
}

func reread(file *os.File, buffer []byte) (string, error) {
	read, err := file.ReadAt(buffer, 0)
	if err != nil && read == 0 && err.Error() != "EOF" {
		return "", err
	}
	return strings.TrimSpace(string(buffer[:read])), nil
}

// strays are threads that may run where their cgroup may not. A program that runc puts into a container later (exec)
// is none of its own before it has begun.
func strays(cpus string, threads []string) map[string]string {
	own := parse(cpus)
	var found map[string]string
	for _, thread := range threads {
		number, _ := strconv.Atoi(thread)
		mask, ok := affinity(number)
		if !ok || subset(mask, own) || runc(thread) {
			continue
		}
		if found == nil {
			found = map[string]string{}
		}
		found[thread] = format(mask)
	}
	return found
}

// differences of two sweeps; nil for a container that is gone.
func differences(before, now map[string]*container) map[string]*container {
	found := map[string]*container{}
	for id, each := range now {
		was := before[id]
		if was == nil || was.Cpus != each.Cpus || was.Kind != each.Kind || !maps.Equal(was.Strays, each.Strays) {
			found[id] = each
		}
	}
	for id := range before {
		if now[id] == nil {
			found[id] = nil
		}
	}
	return found
}

// stat says which file the saved ledger is: each save is a new one. "" where there is none.
func stat() string {
	about, err := os.Stat(root + ledger)
	if err != nil {
		return ""
	}
	return identity(about)
}

func identity(about os.FileInfo) string {
	return fmt.Sprint(about.Sys().(*syscall.Stat_t).Ino, about.ModTime().UnixNano())
}

// saved is the ledger's identity, and its bytes when it is not the one that was known.
func saved(known string) (string, []byte) {
	if now := stat(); now == known {
		return now, nil
	}
	file, err := os.Open(root + ledger)
	if err != nil {
		return "", nil
	}
	defer file.Close()
	about, err := file.Stat()
	data, wrong := io.ReadAll(file)
	if err != nil || wrong != nil {
		return "", nil
	}
	return identity(about), data
}
