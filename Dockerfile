# The gateway as one static program in an otherwise empty image:
#   docker build --build-arg VERSION=$(git describe --tags --always) --build-arg COMMIT=$(git rev-parse --short=12 HEAD) -t aether-gateway .
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
ARG COMMIT=
RUN CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w -X github.com/aether-gateway/gateway/internal/version.version=${VERSION} -X github.com/aether-gateway/gateway/internal/version.commit=${COMMIT}" \
    -o /out/gateway ./cmd/gateway

FROM scratch
# Which authorities to trust: for RabbitMQ, PostgreSQL and Redis by TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/gateway /gateway
USER 65532:65532
EXPOSE 50051 8080 9464
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s CMD ["/gateway", "health"]
ENTRYPOINT ["/gateway"]
CMD ["serve"]
