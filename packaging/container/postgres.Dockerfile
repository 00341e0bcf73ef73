# PostgreSQL 18 with io_method=io_uring. Blocked and without uringlet it does not start.
FROM postgres:18
COPY --from=uringlet / /opt/uringlet
ENV LD_PRELOAD=/opt/uringlet/lib/uringlet/liburinglet.so
ENV URINGLET=when-blocked
CMD ["postgres", "-c", "io_method=io_uring"]
