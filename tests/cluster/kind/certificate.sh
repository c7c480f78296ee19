# Usage: certificate.sh CA NAME
# Prints the `data` of a Secret as YAML: a certificate authority of that name, and a server certificate for a DNS name.
set -eu
cd "$(mktemp -d)"
new() {
  file=$1 name=$2 kind=$3
  shift 3
  openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -keyout new.key -out "$file.crt" \
    -subj "/CN=$name" -addext "subjectAltName=DNS:$name" -extensions "$kind" "$@"
  openssl rsa -traditional -in new.key -out "$file.key" # the only format that cert-controller reads
}
new ca "$1" v3_ca -addext keyUsage=critical,digitalSignature,keyCertSign
new tls "$2" usr_cert -CA ca.crt -CAkey ca.key
for file in ca.key ca.crt tls.key tls.crt; do
  echo "$file: $(base64 -w 0 "$file")"
done
