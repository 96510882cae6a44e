package handler

import (
	"fmt"
	"net/http"

	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/deploy"
	"github.com/weftgo/weft/examples/serve/internal/server"
)

// New returns the routes over a deployment of the model in folder, which must have a tokenizer. Both stay the caller's, and must
// be open as long as requests come.
func New(folder *checkpoint.Folder, d *deploy.Deployment) (http.Handler, error) {
	c := server.Config{Deployment: d, Recorder: d.Config.Recorder}
	if err := c.Read(folder); err != nil {
		return nil, fmt.Errorf("handler: %w", err)
	}
	return server.New(c), nil
}
