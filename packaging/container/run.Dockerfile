# One program, started by uringlet: for a program that is static, too.
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends fio
COPY --from=uringlet / /opt/uringlet
USER 1000
WORKDIR /data
ENTRYPOINT ["/opt/uringlet/bin/uringlet", "run", "--when-blocked", "--"]
CMD ["fio", "--name=job", "--ioengine=io_uring", "--rw=randrw", "--size=16m", "--verify=crc32c"]
