# One program: the library is preloaded into it and into its children.
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends fio
COPY --from=uringlet / /opt/uringlet
ENV LD_PRELOAD=/opt/uringlet/lib/uringlet/liburinglet.so
ENV URINGLET=when-blocked
USER 1000
WORKDIR /data
CMD ["fio", "--name=job", "--ioengine=io_uring", "--rw=randrw", "--size=16m", "--verify=crc32c"]
