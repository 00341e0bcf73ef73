(* OCaml's uring: 4,000 blocks are written and read back, 64 at a time, with and without a
   registered buffer; a pipe that is read before it is written; a time-out. Any wrong byte or result
   is an exception. *)
let block = 4096
let blocks = 4000
let depth = 64
let ring : int Uring.t = Uring.create ~queue_depth:depth ()

let rec next () =
  match Uring.wait ring with
  | Uring.None -> next ()
  | Uring.Some { result; data } -> (Uring.Res.int_exn result "uring" "", data)

let submitted = function
  | Some (_ : int Uring.job) -> ()
  | None -> failwith "the ring is full"

let expect what wanted found =
  if wanted <> found then failwith (Printf.sprintf "%s: %d, not %d" what found wanted)

(* Calls [submit] for each block in a slot of its own, and [check] when it is there. *)
let each_block submit check =
  let free = Queue.create () and held = Array.make depth 0 and left = ref blocks and number = ref 0 in
  for slot = 0 to depth - 1 do Queue.add slot free done;
  while !left > 0 do
    while !number < blocks && not (Queue.is_empty free) do
      let slot = Queue.pop free in
      held.(slot) <- !number;
      submitted (submit slot !number);
      incr number
    done;
    let bytes, slot = next () in
    expect "bytes" block bytes;
    check slot held.(slot);
    Queue.add slot free;
    decr left
  done

let fixed = Bigarray.Array1.create Bigarray.char Bigarray.c_layout (depth * block)
let buffer slot = Cstruct.of_bigarray ~off:(slot * block) ~len:block fixed
let at number = Optint.Int63.of_int (number * block)
let byte number turn = (number * 31 + turn) land 255
let fill slot number turn = Cstruct.memset (buffer slot) (byte number turn)
let wanted = Cstruct.create block

let is_filled turn slot number =
  Cstruct.memset wanted (byte number turn);
  if not (Cstruct.equal wanted (buffer slot)) then failwith (Printf.sprintf "block %d is wrong" number)

let written_and_read fd turn write read =
  each_block (fun slot number -> fill slot number turn; write fd slot number) (fun _ _ -> ());
  Cstruct.memset (Cstruct.of_bigarray fixed) 0;
  each_block (fun slot number -> read fd slot number) (is_filled turn)

let files () =
  let fd = Unix.openfile "blocks" [ Unix.O_RDWR; Unix.O_CREAT; Unix.O_TRUNC ] 0o600 in
  written_and_read fd 1
    (fun fd slot number -> Uring.write ring ~file_offset:(at number) fd (buffer slot) slot)
    (fun fd slot number -> Uring.read ring ~file_offset:(at number) fd (buffer slot) slot);
  (match Uring.set_fixed_buffer ring fixed with Ok () -> () | Error `ENOMEM -> failwith "no buffer can be registered");
  written_and_read fd 2
    (fun fd slot number -> Uring.write_fixed ring ~file_offset:(at number) fd ~off:(slot * block) ~len:block slot)
    (fun fd slot number -> Uring.read_fixed ring ~file_offset:(at number) fd ~off:(slot * block) ~len:block slot);
  Unix.close fd

let pipes () =
  let reader, writer = Unix.pipe () in
  let current = Optint.Int63.of_int (-1) in
  submitted (Uring.read ring ~file_offset:current reader (buffer 0) 1);
  submitted (Uring.write ring ~file_offset:current writer (Cstruct.of_string "through a pipe") 2);
  let both = [ next (); next () ] in
  if List.sort compare both <> [ (14, 1); (14, 2) ] then failwith "the pipe's results";
  if Cstruct.to_string ~len:14 (buffer 0) <> "through a pipe" then failwith "the pipe's bytes"

let times_out () =
  submitted (Uring.timeout ring Uring.Boottime 20_000_000L 0);
  match Uring.wait ring with
  | Uring.Some { result; _ } -> expect "a time-out" (-62) (result :> int)
  | Uring.None -> failwith "no time-out"

let () =
  let started = Unix.gettimeofday () in
  files ();
  Printf.printf "figure %.0f\n" (float (4 * blocks) /. (Unix.gettimeofday () -. started));
  pipes ();
  times_out ();
  Uring.exit ring;
  print_endline "all well"
