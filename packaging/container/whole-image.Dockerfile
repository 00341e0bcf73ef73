# Every dynamic program of the image, whatever its environment is.
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends fio
COPY --from=uringlet / /opt/uringlet
RUN echo /opt/uringlet/lib/uringlet/liburinglet.so > /etc/ld.so.preload
USER 1000
WORKDIR /data
CMD ["env", "-i", "/usr/bin/fio", "--name=job", "--ioengine=io_uring", "--rw=randrw", "--size=16m", "--verify=crc32c"]
