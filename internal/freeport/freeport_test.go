package freeport_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/usherproxy/usher/internal/freeport"
)

// Processes that reserve many ports at the same time never get the same one.
func TestProcessesReserveDifferentPorts(t *testing.T) {
	const processes, each = 4, 100
	if os.Getenv("PORT_TEST_CHILD") != "" {
		for range each {
			fmt.Println("port", freeport.ForTest(t))
		}
		fmt.Println("all")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the others have theirs
		return
	}
	var mu sync.Mutex
	owners := map[string]int{}
	var done, read sync.WaitGroup
	read.Add(processes)
	for range processes {
		child := exec.Command(os.Args[0], "-test.run=^TestProcessesReserveDifferentPorts$")
		child.Env = append(os.Environ(), "PORT_TEST_CHILD=1")
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := child.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			lines := bufio.NewScanner(out)
			for lines.Scan() && lines.Text() != "all" {
				mu.Lock()
				owners[lines.Text()]++
				mu.Unlock()
			}
			read.Done()
			read.Wait()
			if err := in.Close(); err != nil {
				t.Error(err)
			}
			if err := child.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if len(owners) != processes*each {
		t.Errorf("%d different ports, want %d", len(owners), processes*each)
	}
}

// A port that somebody listens on is nobody's, and one that was released is free.
func TestReserve(t *testing.T) {
	n, release, err := freeport.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", n))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
