"""Surroundings of made-up secrets, one in a line: `{}` is the secret, and `\\n` a line break. And lines that hold none.

They were written beside the rules. A rule must not name a line of this file: it must find the next one of its kind too.
"""

COMMANDS = r"""
PGPASSWORD={} psql -h db -U shop shop
psql "host=db user=shop password={} dbname=shop"
psql postgres://shop:{}@db/shop -c 'select 1'
mongosh "mongodb://shop:{}@db:27017/shop"
mongosh --host db -u shop -p {} shop
mongodump --uri=mongodb://db --username shop --password={} --out dump
redis-cli -h cache --pass {} ping
redis-cli -h cache --user ann --pass {} --no-auth-warning ping
REDISCLI_AUTH={} redis-cli ping
htpasswd -b -c .htpasswd ann {}
htpasswd -cbB /etc/nginx/.htpasswd ann {}
htpasswd -nbB ann {}
openssl enc -aes-256-cbc -pass pass:{} -in a -out b
openssl pkcs12 -export -in a.pem -passout pass:{} -out a.p12
openssl genrsa -aes256 -passout pass:{} 4096
ansible-playbook site.yml -e "db_password={} region=eu"
ansible-playbook site.yml --extra-vars 'ansible_become_pass={}'
ansible all -i hosts -m ping -e ansible_ssh_pass={}
vault login {}
vault login -method=userpass username=ann password={}
vault kv put secret/shop password={} user=shop
VAULT_TOKEN={} vault kv get secret/shop
helm upgrade shop ./chart --set postgresql.auth.password={} --set replicas=2
helm install shop ./chart --set-string adminPassword={}
helm repo add shop https://charts.example.org --username ann --password {}
helm registry login ghcr.io -u ann -p {}
echo {} | gh auth login --with-token
GH_TOKEN={} gh pr list
glab auth login --hostname git.example.org --token {}
az login --service-principal -u app -p {} --tenant example
az ad sp credential reset --id app --password {}
az keyvault secret set --vault-name shop --name db --value {}
az storage blob list --account-name shop --account-key {}
aws configure set aws_secret_access_key {}
aws configure set aws_session_token {} --profile ci
aws secretsmanager create-secret --name db --secret-string {}
aws ssm put-parameter --name /shop/db --type SecureString --value {}
aws rds modify-db-instance --db-instance-identifier shop --master-user-password {}
gcloud sql users set-password shop --instance=db --password={}
gcloud sql users create shop --instance db --password {}
kubectl create secret generic db --from-literal=password={}
kubectl create secret generic db --from-literal=user=shop --from-literal=pass={} -n shop
kubectl create secret docker-registry reg --docker-username=ann --docker-password={}
kubectl config set-credentials ann --token={}
kubectl --token {} get pods
oc login https://api.example.org -u ann -p {}
oc login --token={} --server=https://api.example.org
docker run -d -e POSTGRES_PASSWORD={} -p 5432:5432 postgres
docker run -e MYSQL_ROOT_PASSWORD='{}' mysql
docker run --env RABBITMQ_DEFAULT_PASS={} rabbitmq
docker login -u ann --password {} registry.example.org
docker login registry.example.org -u ann -p {}
echo {} | docker login -u ann --password-stdin
docker build --build-arg NPM_TOKEN={} .
docker service create --env DB_PASS={} shop
curl -H "X-Api-Key: {}" https://api.example.org
curl -H 'PRIVATE-TOKEN: {}' https://git.example.org/api/v4/projects
curl -sS --user ann:{} https://example.org
curl --proxy-user ann:{} -x proxy:3128 https://example.org
curl -u 'ann:{}' -T file ftp://example.org
curl -d 'username=ann&password={}' https://example.org/login
curl -d '{"user":"ann","password":"{}"}' https://example.org/login
http -a ann:{} GET example.org/api
http --auth ann:{} example.org/api
http POST example.org/login user=ann password={}
https example.org/api X-Auth-Token:{}
xh -a ann:{} example.org
wget --user=ann --password={} https://example.org/a.zip
wget --http-user=ann --http-password={} https://example.org/a.zip
wget --ftp-user ann --ftp-password {} ftp://example.org/a.zip
ssh-keygen -t ed25519 -N {} -f id
ssh-keygen -p -P {} -N '' -f id
ssh-keygen -t rsa -b 4096 -N "{}" -C ann@example.org
zip -r -P {} backup.zip data
zip --password {} backup.zip data
unzip -P {} backup.zip
7z a -p{} backup.7z data
7z x backup.7z -p{} -oout
7za a -mhe=on -p{} backup.7z data
unrar x -p{} backup.rar
rar a -hp{} backup.rar data
rclone config create box webdav url=https://example.org user=ann pass={}
rclone sync a box: --webdav-pass {}
rclone obscure {}
RCLONE_CONFIG_PASS={} rclone ls box:
RESTIC_PASSWORD={} restic -r /srv/backup snapshots
restic -r rest:https://ann:{}@backup.example.org/ snapshots
BORG_PASSPHRASE='{}' borg create repo::now data
export BORG_PASSPHRASE="{}"
smbclient //host/share -U ann%{}
smbclient -U 'EXAMPLE\ann%{}' //host/share
mount -t cifs //host/share /mnt -o username=ann,password={}
mount.cifs //host/share /mnt -o user=ann,pass={},vers=3.0
lftp -u ann,{} sftp://example.org
lftp -e "open -u ann,{} example.org; ls"
ncftpput -u ann -p {} example.org /up file
mutt -e 'set imap_pass="{}"'
set smtp_pass = "{}"
set my_pass = {}
ldapsearch -x -D cn=admin,dc=example -w {} -b dc=example
ldapadd -H ldap://host -D cn=admin -w{} -f a.ldif
ldappasswd -s {} -D cn=admin -W uid=ann
sqlcmd -S db -U sa -P {} -Q "select 1"
sqlcmd -S db -U sa -P"{}" -d shop
bcp shop.dbo.a out a.csv -S db -U sa -P {}
mysqldump -u root -p{} shop > dump.sql
mysqldump --user=root --password={} --all-databases
mysqladmin -u root password {}
mysqladmin -u root -p'{}' ping
mariadb -ushop -p{} shop
MYSQL_PWD={} mysql -u shop shop
cqlsh db -u shop -p {}
clickhouse-client --user shop --password {} -q 'select 1'
influx -username ann -password {} -database shop
sshpass -p{} ssh ann@example.org
sshpass -p '{}' scp a ann@example.org:
SSHPASS={} sshpass -e ssh ann@example.org
SSHPASS={} rsync -a data ann@example.org:
expect -c 'spawn ssh ann@host; expect "assword:"; send "{}\r"; interact'
plink -ssh ann@host -pw {}
psftp -pw {} ann@host
pscp -pw {} a ann@host:
xfreerdp /u:ann /p:{} /v:host
xfreerdp /v:host /u:ann /p:'{}' /dynamic-resolution
rdesktop -u ann -p {} host
net use Z: \\host\share {} /user:ann
net user ann {} /add
cmdkey /add:host /user:ann /pass:{}
schtasks /create /tn job /tr a.exe /ru ann /rp {}
runas-spc /user:ann /password:{}
psexec \\host -u ann -p {} cmd
wmic /node:host /user:ann /password:{} os get name
evil-winrm -i host -u ann -p {}
crackmapexec smb host -u ann -p {}
impacket-psexec example/ann:{}@host
rpcclient -U ann%{} host
keytool -genkey -keystore a.jks -storepass {} -keypass changeit
keytool -importkeystore -srckeystore a -deststorepass {}
jarsigner -keystore a.jks -storepass {} app.jar shop
apksigner sign --ks a.jks --ks-pass pass:{} app.apk
gpg --batch --passphrase {} -c file
gpg --batch --yes --pinentry-mode loopback --passphrase '{}' -d file
gpg-preset-passphrase --preset --passphrase {} ABCDEF
age-plugin --passphrase {} file
cryptsetup --key-file - open x <<< {}
echo -n "{}" | cryptsetup luksFormat /dev/sdb -
echo '{}' | sudo -S apt update
echo "root:{}" | chpasswd
echo -e "{}\n{}" | passwd ann
printf '%s' '{}' | docker secret create db -
echo -n {} | base64 | kubectl apply -f -
usermod -p '{}' ann
useradd -m -p {} ann
nmcli dev wifi connect Home password {}
nmcli con modify Home wifi-sec.psk {}
wpa_passphrase Home {}
iwctl --passphrase {} station wlan0 connect Home
mosquitto_pub -h mq -u ann -P {} -t a -m b
rabbitmqctl add_user ann {}
rabbitmqctl change_password ann {}
rabbitmqadmin -u ann -p {} list queues
kafka-configs --alter --add-config 'SCRAM-SHA-512=[password={}]' --entity-name ann
ipmitool -H host -U admin -P {} power status
snmpwalk -v3 -u ann -A {} -l authPriv host
swaks --to a@example.org --auth-user ann --auth-password {}
sendemail -f a -t b -xu ann -xp {}
msmtp --passwordeval "echo {}"
s3cmd --access_key=x --secret_key={} ls
mc alias set box https://s3.example.org ann {}
twine upload -u __token__ -p {} dist/*
TWINE_PASSWORD={} twine upload dist/*
poetry config pypi-token.pypi {}
poetry publish --username ann --password {}
npm config set //registry.npmjs.org/:_authToken {}
npm config set _auth={}
pip install --index-url https://ann:{}@pypi.example.org/simple shop
cargo login {}
gem push --key {} a.gem
nuget push a.nupkg -ApiKey {} -Source https://nuget.example.org
dotnet nuget push a.nupkg --api-key {}
dotnet user-secrets set "Smtp:Password" "{}"
heroku config:set SECRET={}
heroku config:set DB_PASS={} -a shop
fly secrets set SMTP_PASSWORD={}
vercel env add TOKEN {}
gh secret set DB_PASSWORD --body "{}"
gh secret set DB_PASSWORD -b {}
wrangler secret put TOKEN <<< {}
terraform apply -var="db_password={}"
terraform plan -var 'admin_token={}' -out p
TF_VAR_db_password={} terraform apply
pulumi config set --secret dbPassword {}
consul kv put shop/db_password {}
etcdctl --user root:{} get a
etcdctl user add ann:{}
influx setup --username ann --password {} --force
grafana-cli admin reset-admin-password {}
wp user create ann ann@example.org --user_pass={}
wp config create --dbname=shop --dbuser=shop --dbpass={}
wp user update ann --user_pass="{}"
drush user:password ann "{}"
occ user:add --password-from-env ann OC_PASS={}
openvpn --auth-user-pass <(printf 'ann\n{}\n')
sudo -u postgres psql -c "ALTER USER shop PASSWORD '{}'"
psql -c "CREATE ROLE shop LOGIN ENCRYPTED PASSWORD '{}'"
mysql -e "SET PASSWORD FOR 'ann'@'%' = PASSWORD('{}')"
mysql -e "GRANT ALL ON *.* TO 'ann' IDENTIFIED BY '{}'"
sqlplus shop/{}@db
impdp shop/{}@db full=y
isql dsn ann {}
svn co --username ann --password {} https://svn.example.org
git config credential.helper '!f() { echo password={}; }; f'
git remote set-url origin https://ann:{}@git.example.org/a.git
jmeter -JPASSWORD={} -t a.jmx
java -Djavax.net.ssl.keyStorePassword={} -jar a.jar
java -Dspring.datasource.password={} -jar a.jar
mvn deploy -Dgpg.passphrase={}
./gradlew publish -PsonatypePassword={}
sonar-scanner -Dsonar.login={}
newman run a.json --env-var "token={}"
k6 run -e API_TOKEN={} a.js
ngrok config add-authtoken {}
ngrok authtoken {}
cloudflared service install {}
tailscale up --authkey={}
tailscale up --auth-key {}
wg set wg0 peer x preshared-key <(echo {})
proxychains -q curl --proxy socks5://ann:{}@host:1080 example.org
aria2c --http-user=ann --http-passwd={} https://example.org/a
youtube-dl -u ann -p {} https://example.org/v
yt-dlp --username ann --password {} https://example.org/v
virsh secret-set-value --secret x --base64 {}
qpdf --password={} --decrypt a.pdf b.pdf
qpdf --encrypt {} {} 256 -- a.pdf b.pdf
pdftk a.pdf input_pw {} output b.pdf
gs -sPDFPassword={} a.pdf
pdftotext -upw {} a.pdf
hdiutil attach a.dmg -stdinpass <<< {}
security add-generic-password -a ann -s shop -w {}
security unlock-keychain -p {} login.keychain
security find-generic-password -s shop -w # {}
secret-tool store --label=shop a b <<< {}
systemd-creds encrypt --name=db <(echo {}) out
bw login ann@example.org {}
bw unlock {}
op item create --category login password={}
op signin --account example --raw <<< {}
borg init --encryption=repokey repo <<< {}
$env:DB_PASSWORD = "{}"
$env:API_TOKEN='{}'
set DB_PASSWORD={}
setx API_TOKEN "{}"
setx API_TOKEN {}
ConvertTo-SecureString "{}" -AsPlainText -Force
$pw = ConvertTo-SecureString -String '{}' -AsPlainText -Force
New-LocalUser ann -Password (ConvertTo-SecureString {} -AsPlainText -Force)
fish: set -x API_TOKEN {}
set -gx DB_PASSWORD {}
"""

PROSE = r"""
The database password is {}.
{} is the password for staging.
{} is my password, please do not tell anyone
{} was the old password.
Log in with {}, then open the settings.
log in as ann with {}
Login: ann / {}
user ann, pw {}
pw: {}
PW {}
pwd: {}
pass: {}
pass is {}
Password -> {}
password → {}
password ({}) works
the password "{}" is too old
the password '{}' does not work any more
the password `{}` no longer works
I changed the password from {} to something else
we changed the password to {} yesterday
change your password to {}
set the password to {} please
I set root's password as {}
use {} as the password
use the password {} for the first login
with password {} it works
his password was {}, I think
password for the router: {}
password for ann@example.org = {}
Wi-Fi password: {}
wifi: Home / {}
wifi key is {}
the admin password of the printer is still {}
Admin credentials are admin / {}
credentials: admin:{}
creds ann:{}
login with ann:{}
username: ann, password: {}
user: ann pass: {}
U: ann P: {}
The default login is admin/{}
sign in as ann using {}
authenticate with {}
it asks for a password, type {}
enter {} when it asks for the password
when prompted for the passphrase enter {}
the passphrase of the key is {}
unlock the vault with {}
the PIN and password are the same: {}
my new password: {}
Temporary password: {}
Your one-time password is {}
Your password has been reset to {}
Initial admin password: {}
The password hint is not needed, it's {}
the api key is {} by the way
the secret for the webhook is {}
bearer token for tests: {}
access code: {}
the password, {}, is in the note
password=>{}
Password:\n{}
Password:\n\n    {}
Passwort: {}
Passwort fürs WLAN: {}
Passwort für den Server ist {}
das Passwort ist {}
Das Passwort lautet: {}
Mein Passwort ist {}
mit dem Passwort {} geht es
das neue Kennwort heißt {}
Zugangsdaten: ann / {}
Zugang: ann / {}
Anmeldung mit {} und dann weiter
melde dich mit ann und {} an
nimm {} als Passwort
{} ist das Passwort für den Testserver
{} als Kennwort eingeben
der API-Schlüssel ist {}
WLAN-Schlüssel: {}
Das Kennwort vom Drucker: {}
PW ist {}
Benutzer ann, Kennwort {}
le mot de passe est {}
mot de passe : {}
mdp : {}
mdp {}
le code d'accès est {}
le mot de passe du wifi : {}
connecte-toi avec {}
avec le mot de passe {} ça marche
utilise {} comme mot de passe
{} est le mot de passe
{} c'est le mot de passe du serveur
identifiants : ann / {}
j'ai changé le mot de passe en {}
la clé d'API est {}
la contraseña es {}
contraseña: {}
con la clave {}
con la contraseña {} funciona
usa {} como contraseña
{} es la contraseña
la clave del wifi es {}
mi clave: {}
credenciales: ann / {}
entra con {} y cambia la contraseña
cambié la contraseña a {}
el código de acceso es {}
"""

LANGUAGES = r"""
Het wachtwoord is {}
wachtwoord: {}
het wachtwoord van de server is {} sinds gisteren
gebruik {} als wachtwoord
met het wachtwoord {} lukt het
{} is het wachtwoord
de sleutel is {}
de toegangscode is {}
La password è {}
la password del server è {}
password del wifi: {}
usa {} come password
con la password {} funziona
la parola d'ordine è {}
la chiave API è {}
{} è la password
il codice di accesso è {}
A senha é {}
a senha do servidor é {} desde ontem
senha: {}
use {} como senha
com a senha {} funciona
a palavra-passe é {}
palavra-passe: {}
a chave da API é {}
{} é a senha
o código de acesso é {}
Hasło to {}
hasło: {}
hasło do serwera to {}
hasło brzmi {}
użyj {} jako hasła
z hasłem {} działa
klucz API to {}
haslo: {}
Lösenordet är {}
lösenord: {}
lösenordet till servern är {}
använd {} som lösenord
med lösenordet {} fungerar det
nyckeln är {}
Passordet er {}
passord: {}
bruk {} som passord
adgangskoden er {}
adgangskode: {}
kodeordet er {}
kodeord: {}
Salasana on {}
salasana: {}
palvelimen salasana on {}
Heslo je {}
heslo: {}
heslo k serveru je {}
přihlas se heslem {}
klíč je {}
A jelszó: {}
a jelszó {}
jelszó = {}
Parola este {}
parola: {}
parola serverului este {}
Şifre: {}
şifre {}
sunucunun şifresi {}
parola şudur: {}
Пароль: {}
пароль от сервера: {}
пароль — {}
пароль {}
пароль для входа это {}
мой пароль {}
Логин ann, пароль {}
ключ API: {}
токен: {}
Пароль до сервера: {}
Κωδικός: {}
ο κωδικός είναι {}
密码是{}
密码：{}
密码是 {}
服务器的密码为 {}
密碼是 {}
口令：{}
パスワードは{}です
パスワード：{}
パスワードは {} です
비밀번호는 {} 입니다
비밀번호: {}
암호: {}
mật khẩu là {}
mật khẩu: {}
kata sandi: {}
kata sandinya {}
lozinka: {}
lozinka je {}
geslo: {}
geslo je {}
la contrasenya és {}
contrasenya: {}
parool on {}
slaptažodis: {}
parole: {}
סיסמה: {}
كلمة المرور: {}
كلمة السر هي {}
पासवर्ड: {}
"""

CONFIGURATION = r"""
<add name="shop" connectionString="Server=db;Database=shop;User Id=ann;Password={};Encrypt=true" />
<add key="SmtpPassword" value="{}" />
<user username="ann" password="{}" roles="manager-gui"/>
<network host="smtp.example.org" userName="ann" password="{}" />
<parameter name="password">{}</parameter>
<property name="connection.password">{}</property>
<property name="hibernate.connection.password" value="{}"/>
<entry key="password">{}</entry>
<string name="api_secret">{}</string>
<key>password</key>\n<string>{}</string>
<Resource name="jdbc/shop" username="ann" password="{}" driverClassName="x"/>
<server><id>a</id><username>ann</username><password>{}</password></server>
<sessionState mode="SQLServer" sqlConnectionString="data source=db;user id=ann;password={}" />
<machineKey validationKey="{}" validation="SHA1" />
<setting name="Password" serializeAs="String"><value>{}</value></setting>
<bean><property name="password"><value>{}</value></property></bean>
variable "db_password" {\n  type    = string\n  default = "{}"\n}
variable "api_token" {\n  description = "token of the API"\n  default     = "{}"\n}
resource "aws_db_instance" "shop" {\n  username = "ann"\n  password = "{}"\n}
master_password = "{}"
administrator_login_password = "{}"
locals {\n  db_pass = "{}"\n}
secret_string = "{}"
password_wo = "{}"
$cfg['Servers'][$i]['password'] = '{}';
define('DB_PASSWORD', '{}');
define( "SMTP_PASS", "{}" );
'password' => '{}',
'password' => env('DB_PASSWORD', '{}'),
password: "{}"
password: '{}'
spring:\n  datasource:\n    username: ann\n    password: {}\n
    environment:\n      - POSTGRES_PASSWORD={}\n      - PGDATA=/data
    environment:\n      MYSQL_ROOT_PASSWORD: {}\n
stringData:\n  username: ann\n  password: {}\n
rootpw {}
bindpw {}
bind_password = {}
ldap_default_authtok = {}
requirepass {}
masterauth {}
user default on >{} ~* +@all
smtp_sasl_password_maps = static:ann:{}
[smtp.example.org]:587 ann:{}
auth_user_pass = ann {}
relayhost_password = {}
psk="{}"
wpa-psk {}
wpa_passphrase={}
ssid=Home\npsk={}
wifi.psk={}
snmp-server community {} ro
enable secret {}
enable password {}
username ann password 0 {}
neighbor 10.0.0.1 password {}
ppp chap password {}
set password {}
pre-shared-key {}
ike-secret = {}
: PSK "{}"
ann : EAP "{}"
machine example.org\n  login ann\n  password {}
machine example.org login ann password {}
default login ann password {}
db.example.org:5432:shop:ann:{}
*:*:*:ann:{}
localhost:5433:*:postgres:{}
[client]\nuser = ann\npassword = {}
[mysqldump]\npassword="{}"
[credential]\n  username = ann\n  password = {}
[repo]\nbaseurl=x\nusername=ann\npassword={}\n
http.proxyPassword={}
systemProp.https.proxyPassword={}
//registry.npmjs.org/:_password={}
npmAuthToken: "{}"
_auth = {}
always-auth=true\n_auth={}
hub.pass={}
signing.password={}
storePassword={}\nkeyPassword={}
keyPassword '{}'
storePassword "{}"
quarkus.datasource.password={}
org.quartz.dataSource.a.password: {}
cookie_secret = {}
jwt_secret: {}
app_secret="{}"
secret_key_base: {}
encryption_key: {}
client-secret: {}
X-Auth-Key: {}
auth_key={}
account_sid=x auth_token={}
access_token_secret: {}
sonar.login={}
smb_password = {}
credentials=username=ann,password={}
username=ann\npassword={}\ndomain=EXAMPLE
security.basic.auth=ann:{}
Authorization: Basic {}
auth: ann:{}
basic_auth:\n  username: ann\n  password: {}
basicauth ann {}
proxy_set_header Authorization "Bearer {}";
SetEnv DB_PASSWORD {}
fastcgi_param DB_PASSWORD {};
Environment="DB_PASSWORD={}"
Environment=API_TOKEN={}
ENV API_TOKEN={}
ARG NPM_TOKEN={}
ARG DB_PASSWORD="{}"
env.DB_PASSWORD = '{}'
environment { API_TOKEN = '{}' }
@Value("${db.password:{}}")
password = os.getenv("DB_PASSWORD", "{}")
PASSWORD = os.environ.get('DB_PASSWORD', '{}')
const pw = process.env.DB_PASSWORD || '{}';
password: process.env.PW ?? "{}",
conn = psycopg2.connect("dbname=shop user=ann password={}")
conn = pymysql.connect('db', 'ann', passwd='{}')
engine = create_engine("mysql+pymysql://ann:{}@db/shop")
auth=("ann", "{}")
auth=HTTPBasicAuth('ann', '{}')
requests.get(url, auth=('ann', '{}'))
client.login("ann", "{}")
smtp.login('ann@example.org', '{}')
ssh.connect(host, username="ann", password="{}")
DriverManager.getConnection(url, "ann", "{}")
new NetworkCredential("ann", "{}")
new PasswordAuthentication("ann", "{}".toCharArray())
setPassword("{}")
.withPassword("{}")
.password("{}")
.basic_auth("ann", Some("{}"))
req.SetBasicAuth("ann", "{}")
mysqli_connect("db", "ann", "{}", "shop")
new PDO($dsn, 'ann', '{}')
mysql_connect('db','ann','{}')
expect("Password:").send("{}")
cy.get('#password').type('{}')
await page.fill('#password', '{}')
await page.type('input[name=password]', '{}')
driver.find_element(By.ID, "password").send_keys("{}")
User.create!(email: 'ann@example.org', password: '{}')
make_password("{}")
user.set_password('{}')
INSERT INTO users (name, password) VALUES ('ann', '{}');
UPDATE users SET password = '{}' WHERE name = 'ann';
UPDATE users SET password='{}', updated_at=now();
CREATE LOGIN ann WITH PASSWORD = N'{}';
CREATE USER ann IDENTIFIED BY "{}";
SET PASSWORD = '{}';
"""

LOGS = r"""
2026-03-01 12:00:01 DEBUG login user=ann password={} ip=10.0.0.1
2026-03-01T12:00:01Z INFO Connecting with Config(user='ann', password='{}', port=5432)
[DEBUG] params: {"user"=>"ann", "password"=>"{}"}
Parameters: {"authenticity_token"=>"x", "user"=>{"password"=>"{}"}}
level=debug msg="connect" dsn="postgres://ann:{}@db/shop"
java.sql.SQLException: Login failed for jdbc:mysql://db/shop?user=ann&password={}
    at connect(url=jdbc:postgresql://db/shop?user=ann&password={}&ssl=true)
sqlalchemy.exc.OperationalError: (pymysql) mysql://ann:{}@db:3306/shop
  File "a.py", line 3, in login\n    client.login(user="ann", password="{}")
TypeError: login() got unexpected keyword, kwargs={'user': 'ann', 'password': '{}'}
DETAIL:  Key (password)=({}) already exists.
DETAIL:  Key (token)=({}) is not present in table "tokens".
fatal: Authentication failed for 'https://ann:{}@git.example.org/a.git/'
remote: https://ann:{}@git.example.org/a.git (push)
audit: cmd="mysql -u root -p{} shop" exit=1
+ mysql -u root -p{} shop
+ export DB_PASSWORD={}
+ PGPASSWORD={}
+ docker login -u ann -p {}
ps: 4711 ? S 0:00 mysqld --user=ann --password={}
CGI QUERY_STRING=user=ann&pass={}
GET /login?user=ann&password={} HTTP/1.1
POST /login body: user=ann&passwd={}&submit=1
"GET /cb?code=1&client_secret={} HTTP/1.1" 200
< Set-Cookie: session={}; Path=/
> Authorization: Bearer {}
> X-Auth-Token: {}
dovecot: auth-worker: sql(ann): Password mismatch (given password: {})
sshd: Failed password attempt '{}' for ann
<password>{}</password> in request body
request.headers = {'X-Api-Key': '{}'}
env: DB_HOST=db DB_USER=ann DB_PASS={} DB_PORT=5432
Config{host=db, user=ann, password={}, port=5432}
Config(host='db', api_token='{}')
DataSource[url=jdbc:x, username=ann, password={}]
connecting to amqp://ann:{}@mq:5672/
panic: cannot connect: user=ann password={} host=db
PASS {}
> PASS {}
AUTH {}
"AUTH" "{}"
C: a1 LOGIN ann {}
a1 LOGIN "ann" "{}"
"""

# -- What is unlike a password: a form of the corpus, and where it is

HASHES = r"""
bcrypt $2b$12${w53}
bcrypt $2y$10${w53}
argon2 $argon2id$v=19$m=65536,t=3,p=4${w22}${w43}
argon2 $argon2i$v=19$m=4096,t=3,p=1${w22}${w43}
sha512crypt $6${w16}${w86}
sha256crypt $5$rounds=5000${w16}${w43}
md5crypt $1${w8}${w22}
apr1 $apr1${w8}${w22}
yescrypt $y$j9T${w22}${w43}
phpass $P$B{w30}
ssha (SSHA){w37}=
ssha512 (SSHA512){w96}==
sha (SHA){w27}=
django pbkdf2_sha256$260000${w22}${w43}=
werkzeug pbkdf2:sha256:260000${w16}${h64}
werkzeug scrypt:32768:8:1${w16}${h128}
ntlm aad3b435b51404eeaad3b435b51404ee:{h32}
netntlm ann::EXAMPLE:{h16}:{h32}:{h64}
scram SCRAM-SHA-256$4096:{w22}==${w43}=:{w43}=
mysql *{H40}
postgres md5{h32}
"""
HASH_FRAMES = r"""
ann:{}:19000:0:99999:7:::
ann:{}
password_hash = "{}"
"password": "{}",
userPassword: {}
INSERT INTO users (name, password) VALUES ('ann', '{}');
hashed_password: {}
the hash of the password is {}
"""
PHRASES = (
    *("correct horse battery staple", "seven purple otters juggle", "quiet river moss lantern cedar"),
    *("maple-tundra-violin-crumb", "orbit.candle.ferret.spoon"),
)
PHRASE_FRAMES = r"""
passphrase: {}
Passphrase: {}\n
passphrase = "{}"
BORG_PASSPHRASE="{}" borg list
export RESTIC_PASSWORD='{}'
the passphrase is {}
the passphrase is "{}"
my passphrase is {}.
password: "{}"
The password for the vault is "{}".
gpg --passphrase "{}" -d a.gpg
ssh-keygen -t ed25519 -N "{}" -f id
Die Passphrase lautet {}
la phrase de passe est {}
use "{}" as the passphrase
"""
SEEDS = (
    "ribbon lunar velvet cactus marble quick dune olive tiger sponsor anchor nephew",
    (
        "glide spoil wagon turtle onion exhaust brick panther lemon trophy divert kiwi"
        " oven fabric hybrid jungle mirror sadness gospel vivid couch lobster rebel acid"
    ),
)
SEED_FRAMES = r"""
seed: {}
seed phrase: {}
My seed phrase is {}
mnemonic = "{}"
MNEMONIC={}
recovery phrase:\n{}
the recovery phrase of my wallet is: {}
wallet seed "{}"
backup words: {}
die Seed-Phrase lautet {}
"mnemonic": "{}"
secret recovery phrase\n\n{}\n
HDWalletProvider("{}", url)
"""
SALTS = r"""
define('AUTH_KEY',         '{}');
define('SECURE_AUTH_KEY',  '{}');
define( 'LOGGED_IN_SALT', '{}' );
define('NONCE_SALT', "{}");
AUTH_KEY='{}'
SECRET_KEY = '{}'
"""
KUBECONFIG = r"""
users:\n- name: ann\n  user:\n    client-key-data: {}\n
    client-certificate-data: Q0VSVA==\n    client-key-data: {}
    token: {}
apiVersion: v1\nkind: Secret\ndata:\n  password: {}\n
data:\n  tls.key: {}
  .dockerconfigjson: {}
"""

# -- Lines without a secret: the same words, tools and forms

HARMLESS = r"""
PGPASSWORD=$DB_PASSWORD psql -h db -U shop shop
PGPASSWORD="$(cat /run/secrets/db)" psql -h db
psql -h db -p 5432 -U shop -W shop
mongosh --host db --port 27017 -u shop -p
redis-cli -h cache -p 6379 -n 2 ping
redis-cli -a "$REDIS_PASSWORD" ping
htpasswd -c .htpasswd ann
openssl enc -aes-256-cbc -pass env:PASSWORD -in a -out b
openssl rsa -in key.pem -passin file:/run/secrets/key -out plain.pem
openssl x509 -in certificate2.pem -noout -text
ansible-playbook site.yml -e "region=eu-west-1 replicas=3"
ansible-playbook site.yml --ask-become-pass --vault-password-file ~/.vault1
vault login -method=oidc role=admin
vault kv get -field=password secret/shop
helm upgrade shop ./chart --set replicas=2 --set image.tag=v1.2.3
helm upgrade shop ./chart --set auth.existingSecret=shop-postgres-2
gh auth login --web
gh auth login --with-token < token.txt
gh pr create --title "Rename the token2 field" --body "see #12"
az login --use-device-code
az group create -n shop -l westeurope
az vm list -o table --query "[?powerState=='VM running']"
aws configure set region eu-west-1
aws configure set output json --profile ci2
aws s3 cp s3://shop-2026/backup1.tar.gz .
gcloud config set project shop-12345
gcloud compute instances list --filter="name=web-1"
kubectl get secret db-credentials-v2 -o yaml
kubectl create secret generic db --from-file=password.txt
kubectl create secret generic db --from-literal=password=$PASSWORD
kubectl create configmap a --from-literal=region=eu-west-1
kubectl -n shop2 get pods -l app=web-1
docker run -d -e POSTGRES_PASSWORD -p 5432:5432 postgres:16
docker run -e POSTGRES_PASSWORD=$DB_PASSWORD -p 8080:80 shop:v1.2
docker run -e TZ=Europe/Berlin -e WORKERS=4 shop
docker run --env-file .env.production2 shop
docker login --username ann --password-stdin < token.txt
curl -H "Accept: application/json; version=2" https://api.example.org/v1
curl -H "Content-Type: application/vnd.api2+json" -d @body1.json https://example.org
curl -u ann https://example.org
curl -o archive-1.2.3.tar.gz https://example.org/archive-1.2.3.tar.gz
http GET example.org/api/v2/items page==2 limit==50
wget -q --user-agent=Mozilla/5.0 https://example.org/a-1.2.zip
wget --ask-password --user=ann https://example.org/a.zip
ssh-keygen -t ed25519 -C ann@example.org -f ~/.ssh/id_ed25519
ssh-keygen -t ed25519 -N "" -f id2
ssh-keygen -R host1.example.org
ssh-keygen -lf ~/.ssh/id_rsa2.pub
zip -r backup-2026.zip data1
zip -e backup.zip data
unzip -p a1b2.zip file.txt
7z a backup-2026.7z data1
7z x backup1.7z -oout2
rclone sync data1 box:backup2 --progress
rclone copy a b --bwlimit 10M --transfers 4
restic -r /srv/backup1 backup ~/data --tag v2
restic -r /srv/backup --password-file ~/.restic2 snapshots
borg create --stats repo::2026-03-01T12 data
borg init --encryption=repokey-blake2 repo
BORG_PASSCOMMAND="cat ~/.borg-passphrase" borg list
smbclient //host1/share2 -U ann
smbclient -L host1 -N
lftp -u ann sftp://example.org:2222
mutt -s "Report 2026w12" ann@example.org < report1.txt
ldapsearch -x -H ldap://host1 -b dc=example uid=ann2
ldapsearch -x -D cn=admin -W -b dc=example
sqlcmd -S db1 -E -Q "select top 10 * from a1"
sqlcmd -S tcp:db1,1433 -U sa -i schema2.sql
mysqldump -u root -p shop > dump1.sql
mysqldump --defaults-file=~/.my.cnf --single-transaction shop2
mysql -h db1 -P 3306 -u shop -p shop2
mysql --protocol=tcp --port=3307 shop
cqlsh db1 9042 -k shop2
scp -P 2222 a1.txt ann@example.org:b2/
ssh -p 2222 -L 8080:localhost:80 ann@host1
rsync -avP -e "ssh -p 2222" a1 host2:b3
git commit -p -m "Fix 2FA token2 parser"
git log -p --since=2026-01-01 src/a1.py
git checkout -b fix/password2-reset
cp -p config1.yml config2.yml
mkdir -p a1/b2/c3
ps -p 12345 -o pid,comm
nmap -p 1-65535 -A host1
nc -p 4444 -l
patch -p1 < fix2.diff
pip install -U pip3 wheel2
pytest -p no:cacheprovider -k password2 tests/test_login1.py
pytest -k "token and not slow2" -x
grep -rn "password1" src --include=*.py
grep -w token2 -A 3 a1.log
rg -uu secret_key2 src
sed -i 's/password1/password2/' a.txt
make -j4 TARGET=x86_64 PREFIX=/usr/local2
tar -xzpf a1.tar.gz -C b2
keytool -list -keystore a1.jks -alias shop2
gpg --passphrase-file ~/.pass1 -d a.gpg
gpg --recv-keys 0xDEADBEEF12345678
gpg -u ann@example.org --sign a1.txt
echo "hello2" | base64
echo "token2 expired" | tee -a a1.log
echo "$PASSWORD" | sudo -S apt update
sudo -u postgres2 psql shop
useradd -m -s /bin/bash ann2
passwd ann2
nmcli dev wifi list ifname wlan0
nmcli dev wifi connect Home2
systemctl restart wg-quick@wg0
mosquitto_sub -h mq1 -p 1883 -t a/b2
ipmitool -H host1 -U admin power status
npm config set registry https://registry.example.org/npm2
npm config get //registry.npmjs.org/:_authToken
twine upload -r testpypi2 dist/*
cargo login
cargo build --features "token2 auth"
terraform apply -var="region=eu-west-1" -auto-approve
terraform plan -out plan2 -target=module.a1
heroku config:set WEB_CONCURRENCY=2
fly secrets list -a shop2
pulumi config set region eu-west-1
consul kv put shop/replicas 12
java -Xmx2g -Dserver.port=8080 -jar a1.jar
mvn deploy -DskipTests -Drevision=1.2.3
tailscale up --hostname=web1
ngrok http 8080
bw login ann@example.org
qpdf --decrypt a1.pdf b2.pdf
net use Z: \\host1\share2
--password is deprecated; use --password-file instead
Use --token to pass a token, or --token-file to read it from a file.
The option -p sets the port, --password asks for one.
`--api-key` overrides the key of the configuration file
--secret-name shop-db-2 --secret-version 12
The flag --pass-through2 keeps unknown options.
The password is at least 12 characters long.
The password was changed on 2026-03-01 by ann2.
the password is stored as SHA-256 in v2
The password is sent with every request in HTTP/1.1.
The password is base64-encoded and the token is URL-safe.
Passwords are hashed with PBKDF2 or bcrypt2.
Your password is 8-64 characters long.
Log in with your GitHub account or with OAuth2.
Log in with SSO, then open the settings.
log in with a passkey or U2F.
Sign in with Apple or Web3 wallets.
log in as user1 and open page2
use OAuth2 as the login method
use UTF-8 as the encoding and P256 as the key type
use Ed25519 as the key type, or RSA-4096.
use AES-256-GCM with a key of 32 bytes
Argon2id is the password hash we use
JWT is the token format, HS256 the algorithm.
bcrypt is the password hash of version 2
X509 is the key format
Base64 is not a secret.
The key is case-sensitive and the password is not.
password reset: see RFC6238 and RFC4226
The token is valid for 3600s, the key for 90d.
The token is 40 characters, the secret 32 bytes.
The key is user_id2, the value is a list.
The key was renamed from a1 to b2 in v1.2.3.
the primary key is (tenant_id, item_id2)
Press the key F12 or Ctrl+Alt+F2.
the keys are k1, k2 and k3
token: IDENTIFIER2 at line 12, column 3
Unexpected token } in JSON at position 512
Unexpected token 'abc1', "abc1" is not valid JSON
SyntaxError: Unexpected token: punc (3)
pass: 12 fail: 3 skip: 1
PASS tests/test_login2.py (12 tests)
pass@1 is 63.2, pass@10 is 88.1
pass 2 of 3: link1.o
second pass: 4213 items in 2.1s
user: ann2, role: admin1
the secret is to test with py311 and py312
the secret ingredient is E330
Passwort ist mindestens 12 Zeichen lang, siehe §3.
Das Passwort ist abgelaufen, seit 2026-03-01.
Das Passwort wird mit SHA-256 gespeichert.
Der Schlüssel liegt in Raum B204.
Das Kennwort steht in KeePass2.
Melde dich mit OAuth2 an.
le mot de passe est trop court (8 caractères).
le mot de passe est stocké en SHA-256.
la clé est dans le fichier config2.yml
La contraseña es de 12 caracteres.
la contraseña es obligatoria desde v2.1
con la clave pública RSA-2048
Het wachtwoord is te kort (min. 8 tekens).
het wachtwoord is verlopen sinds 2026-03-01
La password è obbligatoria dal 2026.
la password è troppo corta: minimo 8 caratteri
A senha é obrigatória desde a versão 2.1.
a senha é armazenada com SHA-256
Hasło to minimum 12 znaków.
hasło jest za krótkie (min. 8 znaków)
Lösenordet är för kort (minst 8 tecken).
lösenordet är hashat med bcrypt2
Salasana on liian lyhyt (väh. 8 merkkiä).
Heslo je příliš krátké (min. 8 znaků).
Пароль должен содержать 8 символов.
пароль хранится в SHA-256
密码必须至少包含8个字符
密码长度为8到64位
パスワードは8文字以上です
비밀번호는 8자 이상이어야 합니다
"password": "Wachtwoord", "passwordTooShort": "Wachtwoord te kort"
"password": "Hasło", "token": "Token"
"login.password": "Lösenord"
"senha": "Senha", "confirmar": "Confirmar senha"
"password": "Пароль", "forgot": "Забыли пароль?"
<add name="shop" connectionString="Server=db;Database=shop;Integrated Security=true" />
<add key="PasswordMinLength" value="12" />
<add key="TokenLifetime" value="3600" />
<input type="password" name="password" value="" autocomplete="current-password">
<input type="password" id="password1" placeholder="Password">
<parameter name="password">${db.password}</parameter>
<password>{{ db_password }}</password>
<string name="password_hint">Password</string>
<string name="token_label">Token2</string>
<machineKey validation="SHA1" decryption="AES" />
<property name="passwordEncoder" ref="bcrypt2Encoder"/>
variable "db_password" {\n  type      = string\n  sensitive = true\n}
variable "token_ttl" {\n  default = "3600s"\n}
password = var.db_password
password = random_password.db2.result
password = data.aws_ssm_parameter.db1.value
secret_arn = aws_secretsmanager_secret.shop2.arn
key = "terraform/shop/state2.tfstate"
$cfg['Servers'][$i]['auth_type'] = 'cookie2';
define('WP_DEBUG', 'false');
define('DB_CHARSET', 'utf8mb4');
define('AUTH_KEY', 'put your unique phrase here');
'password' => env('DB_PASSWORD'),
'password' => ['required', 'min:8'],
'password_timeout' => 10800,
password: !secret shop_password2
password: ENC2_VARIABLE
password_encryption = scram-sha-256
passwordRef:\n  name: shop-db-2
secretKeyRef:\n  name: shop-db-2\n  key: password
secretName: shop-tls-2
tokenUrl: https://auth.example.org/oauth2/token
tokens_per_second: 42.5tok
key_type: ed25519
auth_method: scram-sha-256
auth_type: oauth2
auth = None if user2 is None else user2.auth
login_url = "/accounts2/login/"
PasswordAuthentication no
PasswordAuthentication2 = true
hash_type: argon2id
password_hash_algorithm = "pbkdf2_sha256"
password_hashers = ["bcrypt2", "argon2"]
if user.check_password("wrong") is False:
assertEqual(form.errors["password1"], ["required"])
cy.get('#password').type(Cypress.env('PW2'))
await page.fill('#password', password2)
driver.find_element(By.ID, "password1").send_keys(password1)
user.set_password(data["password1"])
client.login(username=user1.name, password=password1)
client.login(credentials2)
auth=(user1, password1)
setPassword(event.target.value2)
const [password1, setPassword1] = useState("");
type LoginForm = { password: string; token2?: string };
password?: string | null; apiKey2: string
def login(user: str, password: str = DEFAULT_PASSWORD2) -> Token2:
token = self.tokens[index2]
token = next(tokens1)
tokenizer = AutoTokenizer.from_pretrained("bert-base2-uncased")
key = lambda row1: row1.name2
key: row2.id, value: row2.name
sorted(rows1, key=by_date2)
cache_key = f"shop:{user_id2}:cart"
primaryKey: 'id2', foreignKey: 'user_id2'
SELECT token2, password1 FROM users WHERE id = 12;
INSERT INTO tokens (name, count) VALUES ('shop', 12);
UPDATE users SET password = :password1 WHERE id = 12;
UPDATE users SET password = ? WHERE name = 'ann2';
Access denied for user 'ann'@'10.0.0.1' (using password: YES)
FATAL:  password authentication failed for user "ann2"
sshd[1234]: Failed password for ann2 from 10.0.0.1 port 50022 ssh2
sshd[1234]: Accepted publickey for ann from 10.0.0.1 port 50022 ssh2: ED25519
pam_unix(sshd:auth): authentication failure; user=ann2
DETAIL:  Key (id)=(12) already exists.
DETAIL:  Key (email)=(ann@example.org) already exists.
java.lang.IllegalArgumentException: password1 must not be null
  File "a1.py", line 12, in login2\n    token = get_token2(user1)
KeyError: 'password1'
TypeError: login2() missing 1 required argument: 'password'
GET /login?next=%2Fhome2&lang=en HTTP/1.1
GET /password/reset2 HTTP/1.1" 200 1234
level=info msg="token refreshed" user=ann2 ttl=3600s
auth: ok user=ann2 method=oauth2
+ docker login -u ann -p ***
seed: 12345
seed = 42, rounds = 100
random.seed(20260301)
the seed is 42 and the run takes 2m30s
seed data: users, orders, items, carts, prices, taxes and more of those that we need
mnemonic: every good boy does fine
the seed phrase must never be stored in clear text by any of the services that we run
The recovery phrase has 12 or 24 words; write them down on paper and keep it safe.
passphrase: required
the passphrase is not stored anywhere
the passphrase is asked for once per session
The passphrase must have four or more words.
my passphrase is not long enough for this vault
password: must not be empty
password: the one from the wiki
the password is the same as before
The password is wrong because the shift key was down.
enter the password when it asks for it
when prompted for the passphrase press enter
price list: $6 per user, $2 per token, $5 per key
costs $1$2 and ${HOME}$PATH
{SHA} and {SSHA} are schemes of LDAP
$2b$12$ is the prefix of bcrypt, $6$ of sha512crypt
md5 and sha256 are digests; pbkdf2:sha256 is a method
src/a1.py:12:80:E501:line too long
host1:8080:service2:up
ann:x:1000:1000:Ann:/home/ann:/bin/bash
2026-03-01:12:30:05:event2
sha256$rounds
client-certificate-data: see kubeconfig2
certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUREakNDQWZhZ0F3SUJBZ0lJ
"""


def lines(block: str) -> list[str]:
    """Return the lines of a block; `\\n` in one of them is a line break."""
    return [each.replace("\\n", "\n") for each in block.strip("\n").splitlines()]
