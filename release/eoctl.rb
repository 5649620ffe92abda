# `make release` fills this in: dist/eoctl.rb, a formula for a tap of one's own. No Homebrew has run it
# here; its steps are those of docs/deploy/Containerfile, which were run.
class Eoctl < Formula
  desc "Find and fix what holds exactly-once back in Kafka"
  homepage "@URL@"
  url "@URL@/eoctl-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license "Apache-2.0"
  depends_on "python@3.13"

  def install
    python = Formula["python@3.13"].opt_bin/"python3.13"
    build = buildpath/"build-tools"
    system python, "-m", "venv", build
    system build/"bin/pip", "install", "--quiet", "--require-hashes", "--no-deps", "-r", "requirements-uv.lock"
    system build/"bin/uv", "build", "--quiet", "--wheel", "--build-constraint", "requirements.lock", "--out-dir", "dist", "."
    system python, "-m", "venv", "--without-pip", libexec
    system build/"bin/uv", "pip", "install", "--quiet", "--python", libexec/"bin/python", "--compile-bytecode",
           "--constraint", "requirements.lock", "#{Dir["dist/eoctl-*.whl"].first}[exporter]"
    system libexec/"bin/python", "-m", "docs.man", "eoctl.1"
    man1.install "eoctl.1"
    bin.install_symlink libexec/"bin/eoctl"
    generate_completions_from_executable(bin/"eoctl", "completion")
  end

  test do
    assert_match "eoctl #{version}", shell_output("#{bin}/eoctl --version")
  end
end
