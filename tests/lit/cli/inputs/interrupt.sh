#!/bin/sh
# Interrupts a run while it writes: interrupt.sh FOLDER COMMAND... The command's last result goes to the pipe
# FOLDER/pipe, which nobody reads, so it waits there with the temporary of the first one in the folder.
folder=$1
shift
mkfifo "$folder/pipe"
"$@" &
running=$!
tries=0
until ls "$folder"/.fathom-* >/dev/null 2>&1; do
  tries=$((tries + 1))
  if [ $tries -gt 300 ]; then
    echo "no temporary after 30 seconds"
    exit 1
  fi
  sleep 0.1
done
echo "temporary seen"
kill $running
wait $running
echo "exit $?"
