# javac and java: threads, files, sockets, children, memory mappings, a stack overflow that is caught.
. "$(dirname "$0")/lib.sh" "$1" "$2"
cat > Work.java <<'J'
import java.io.*; import java.net.*; import java.nio.*; import java.nio.channels.*; import java.nio.file.*; import java.util.*; import java.util.concurrent.*; import java.util.stream.*;
public class Work {
    static int depth(int n) { return depth(n + 1) + 1; }
    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8);
        List<Future<Integer>> parts = new ArrayList<>();
        for (int i = 0; i < 100; i++) { final int n = i; parts.add(pool.submit(() -> n * n)); }
        int sum = 0; for (Future<Integer> part : parts) sum += part.get(); pool.shutdown();
        System.out.println("threads " + sum);
        Path file = Path.of("file.bin");
        try (FileChannel c = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            MappedByteBuffer m = c.map(FileChannel.MapMode.READ_WRITE, 0, 1 << 20); for (int i = 0; i < 1 << 20; i++) m.put(i, (byte) i); m.force();
        }
        byte[] read = Files.readAllBytes(file); long total = 0; for (byte b : read) total += b & 255; System.out.println("mapped " + total);
        Process p = new ProcessBuilder("sh", "-c", "read x; echo got $x; exit 6").redirectErrorStream(true).start();
        p.getOutputStream().write("line\n".getBytes()); p.getOutputStream().close();
        System.out.println("child " + new String(p.getInputStream().readAllBytes()).trim() + " " + p.waitFor());
        ServerSocketChannel server = ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
        int port = ((InetSocketAddress) server.getLocalAddress()).getPort();
        Thread echo = new Thread(() -> { try { for (int i = 0; i < 20; i++) { SocketChannel s = server.accept(); ByteBuffer b = ByteBuffer.allocate(64); s.read(b); b.flip(); s.write(b); s.close(); } } catch (IOException e) { throw new UncheckedIOException(e); } }); echo.start();
        Selector selector = Selector.open(); int answers = 0;
        for (int i = 0; i < 20; i++) { SocketChannel s = SocketChannel.open(new InetSocketAddress("127.0.0.1", port)); s.write(ByteBuffer.wrap(("n" + i).getBytes())); s.configureBlocking(false); s.register(selector, SelectionKey.OP_READ);
            while (selector.select(5000) == 0) ; for (SelectionKey k : selector.selectedKeys()) { ByteBuffer b = ByteBuffer.allocate(64); if (((SocketChannel) k.channel()).read(b) > 0) answers++; k.cancel(); k.channel().close(); } selector.selectedKeys().clear(); }
        echo.join(); System.out.println("sockets " + answers);
        try { depth(0); } catch (StackOverflowError e) { System.out.println("stack overflow caught"); }
        Integer none = null; try { none.toString(); } catch (NullPointerException e) { System.out.println("null caught"); }
        for (int i = 0; i < 200; i++) { byte[] garbage = new byte[1 << 20]; garbage[i] = 1; } System.gc(); System.out.println("gc");
        Thread sleeper = new Thread(() -> { try { Thread.sleep(60000); } catch (InterruptedException e) { System.out.println("interrupted"); } }); sleeper.start(); sleeper.interrupt(); sleeper.join();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook")));
        System.exit(5);
    }
}
J
javac Work.java
outcome java -Xmx256m Work
