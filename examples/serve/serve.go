package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/weftgo/weft/examples/internal/bundled"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/deploy"
	"github.com/weftgo/weft/examples/serve/internal/server"
	"github.com/weftgo/weft/trace"
)

// serve opens the model, answers requests until ctx ends, and then lets those under way end.
func (f *flags) serve(ctx context.Context, out, errOut io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.LogLevel)); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: level}))
	folder, err := openModel(f.Model)
	if err != nil {
		return err
	}
	defer folder.Close()
	l, err := f.layout(folder.Config)
	if err != nil {
		return err
	}
	available := int64(f.MaxMemory * (1 << 30))
	if available == 0 {
		available = availableMemory() / 10 * 9
	}
	cfg, err := f.deployment(l, folder.Config, available)
	if err != nil {
		return err
	}
	sc, err := f.server(folder, log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(f.Host, strconv.Itoa(f.Port))) // before loading, which takes time
	if err != nil {
		return err
	}
	defer listener.Close()
	sc.Recorder = trace.New(l.Size(), trace.Totals)
	cfg.Recorder = sc.Recorder
	begin := time.Now()
	if sc.Deployment, err = deploy.Open(ctx, folder, cfg); err != nil {
		return err
	}
	log.Info("model loaded", "model", folder.Name(), "layout", l.String(), "ranks", l.Size(), "max_model_len", cfg.MaxModelLen,
		"kv_tokens_a_replica", cfg.CacheTokens, "took", time.Since(begin).Round(time.Millisecond))
	if layers := sc.Deployment.Models[0].MoELayers(); len(layers) > 0 {
		log.Info("chosen: " + layers[0].String())
	}
	fmt.Fprintf(out, "serving %s in layout %v on http://%s\n", sc.Models[0], l, listener.Addr())
	err = answer(ctx, listener, server.New(sc), f.DrainTimeout, log)
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, sc.Deployment.Close(closing))
}

// server is the server's configuration, without what is loaded later.
func (f *flags) server(folder *checkpoint.Folder, log *slog.Logger) (server.Config, error) {
	c := server.Config{Models: f.ServedName, APIKey: f.APIKey, Version: version(), MaxLogprobs: f.MaxLogprobs, MaxQueued: f.MaxQueued, Log: log}
	switch {
	case f.IDsOnly:
		c.ReadSizes(folder)
		return c, nil
	case !folder.HasTokenizer():
		return c, fmt.Errorf("%s has no tokenizer.json; with --skip-tokenizer-init the server takes and gives ids", folder.Name())
	}
	return c, c.Read(folder)
}

// answer serves until ctx ends, then drains: new requests get 503, those under way may end within the timeout, and are
// aborted after it.
func answer(ctx context.Context, listener net.Listener, s *server.Server, drain time.Duration, log *slog.Logger) error {
	base, abort := context.WithCancel(context.Background())
	defer abort()
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return base }, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	log.Info("draining", "timeout", drain)
	s.Drain()
	deadline, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	err := h.Shutdown(deadline)
	if err != nil {
		log.Warn("aborting the requests that are still under way")
		abort()
		last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err = h.Shutdown(last); err != nil {
			err = errors.Join(err, h.Close())
		}
	}
	<-failed
	return err
}

// openModel opens a model folder, or the bundled one if dir is empty.
func openModel(dir string) (*checkpoint.Folder, error) {
	if dir == "" {
		return checkpoint.OpenFS(bundled.FS(), bundled.Name)
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no model folder %s; it must hold config.json and model.safetensors", dir)
	}
	return checkpoint.Open(dir)
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "(devel)"
}
