package api

import (
	"fmt"
	"net/http"
)

// Error is an error for a client, with an HTTP status.
type Error struct {
	Status  int
	Message string
	Param   string // the field to blame; may be ""
}

func (e *Error) Error() string { return e.Message }

// types are vLLM's names of the statuses.
var types = map[int]string{
	http.StatusBadRequest: "BadRequestError", http.StatusUnauthorized: "AuthenticationError", http.StatusNotFound: "NotFoundError",
	http.StatusMethodNotAllowed: "MethodNotAllowedError", http.StatusRequestEntityTooLarge: "BadRequestError",
	http.StatusInternalServerError: "InternalServerError", http.StatusNotImplemented: "NotImplementedError",
	http.StatusServiceUnavailable: "ServiceUnavailableError", http.StatusRequestTimeout: "RequestTimeoutError",
}

// ErrorBody is an error as JSON: {"error": {...}}.
type ErrorBody struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail is the inner object; Code is the HTTP status.
type ErrorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

// Body returns the error as its JSON object.
func (e *Error) Body() ErrorBody {
	d := ErrorDetail{Message: e.Message, Type: types[e.Status], Code: e.Status}
	if d.Type == "" {
		d.Type = "APIError"
	}
	if e.Param != "" {
		d.Param = &e.Param
	}
	return ErrorBody{d}
}

// BadRequest returns a 400 about a field.
func BadRequest(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

func notFound(model string, served []string) *Error {
	return &Error{Status: http.StatusNotFound, Param: "model", Message: fmt.Sprintf("the model %q does not exist; served: %q", model, served)}
}
