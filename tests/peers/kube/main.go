// The Kubernetes components of the tests and of the lab, as one program that is told by its name (or first argument)
// which one to be: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl. One program links
// the shared packages once: 130 MB instead of 500 MB, and one build instead of six. `sa-key FILE` writes a key that
// service account tokens are signed with, so that no openssl is needed.
package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // what the components' own mains register
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlerrors "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var components = map[string]bool{
	"etcd": true, "kube-apiserver": true, "kube-controller-manager": true, "kube-scheduler": true, "kubelet": true,
	"kubectl": true,
}

func main() {
	name, rest := filepath.Base(os.Args[0]), os.Args
	if !components[name] && len(os.Args) > 1 {
		name, rest = os.Args[1], os.Args[1:]
	}
	os.Args = rest
	var command *cobra.Command
	switch name {
	case "sa-key":
		serviceAccountKey(rest[1])
		return
	case "etcd":
		etcdmain.Main(rest)
		return
	case "kube-apiserver":
		command = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		command = controllers.NewControllerManagerCommand()
	case "kube-scheduler":
		command = scheduler.NewSchedulerCommand()
	case "kubelet":
		command = kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		command = kubectl.NewDefaultKubectlCommand()
		if err := cli.RunNoErrOutput(command); err != nil {
			kubectlerrors.CheckErr(err) // says it as kubectl does, and exits
		}
		return
	default:
		fmt.Fprintf(os.Stderr, "kube: no component is called %q\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}

func serviceAccountKey(path string) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err == nil {
		block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
		err = os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube sa-key:", err)
		os.Exit(1)
	}
}
