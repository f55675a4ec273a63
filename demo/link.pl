# What a TCP connection between two nodes carries, in MiB/s.
#
#   perl link.pl listen PORT          prints it when the sender has closed
#   perl link.pl send HOST PORT MIB
use strict;
use warnings;
use IO::Socket::INET;
use Time::HiRes qw(sleep time);

$SIG{ALRM} = sub { die "link.pl: no connection, or too slow\n" };
alarm 20;
my ($verb, @words) = @ARGV;
if ($verb eq 'listen') {
    my $server = IO::Socket::INET->new(LocalPort => $words[0], Listen => 1, ReuseAddr => 1) or die "listen: $@\n";
    my $connection = $server->accept or die "accept: $!\n";
    my ($bytes, $begin) = (0, time);
    while (my $count = sysread $connection, my $piece, 1 << 20) { $bytes += $count }
    printf "%.0f\n", $bytes / (1 << 20) / (time - $begin);
} else {
    my ($host, $port, $mib) = @words;
    my $connection;
    for (1 .. 100) {
        last if $connection = IO::Socket::INET->new(PeerAddr => $host, PeerPort => $port);
        sleep 0.1;
    }
    $connection or die "connect: $@\n";
    my $left = $mib << 20;
    my $piece = "\0" x (1 << 20);
    while ($left > 0) {
        my $sent = syswrite($connection, $piece) // die "send: $!\n";
        $left -= $sent;
    }
}
